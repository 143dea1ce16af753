"""What the worker says to the server: exactly one frame for each request."""

frames = load("frames")
text = load("text")

RESULT = (
    '{"event":"result","id":%s,"status":"%s","output":%s,"return_value":%s,"error":%s,"exit_code":%d,'
    '"oom":%s,"interrupted":%s,"duration_s":%.6f,"hint":"%s","notes":[%s]}'
)
# For when there was no memory left to make another.
EXHAUSTED = {
    "status": "error", "output": "null", "return_value": "null", 
    "error": "MemoryError: nothing was left for the result of the code", "exit_code": 1,
    "oom": True, "interrupted": False, "duration_s": 0.0, "hint": "",
}


def result(identity, fields, notes, limit):
    """The frame of a result; with less in it, and a note, where it would be beyond limit.

    output and return_value are JSON already.
    """
    data = encode(identity, fields, notes)
    if len(data) > limit:
        fields["output"] = fields["return_value"] = "null"
        data = encode(identity, fields, ["the values were left out: the reply was larger than %d bytes" % limit])
    if len(data) > limit:
        fields["error"] = fields["error"][:500]
        data = encode(identity, fields, [])
    return frames.frame(frames.WORKER, data)


def encode(identity, fields, notes):
    return (
        RESULT
        % (
            text.quote(identity), fields["status"], fields["output"], fields["return_value"],
            text.quote(fields["error"]), fields["exit_code"], text.plain(fields["oom"]),
            text.plain(fields["interrupted"]), fields["duration_s"], fields.get("hint", ""), ",".join(map(text.quote, notes)),
        )
    ).encode("ascii")


def restored(notes):
    """A standby has taken over; what it could not bring along."""
    notes = [text.bounded(note, 2000) for note in notes[:20]]
    return frames.frame(frames.WORKER, ('{"event":"restored","notes":[%s]}' % ",".join(map(text.quote, notes))).encode("ascii"))


def refusal(identity, error):
    fields = {"event": "refused", "id": identity, "error": error}
    return frames.frame(frames.WORKER, text.compose(fields).encode("ascii"))
