"""What the server asks of the worker, checked."""

text = load("text")
values = load("values")


def understand(worker, payload):
    """(request, ""), or what there is of it and what is wrong with it. The worker learns its id."""
    try:
        request = text.parse(payload)
    except (ValueError, RecursionError):
        return None, "the request is not JSON in UTF-8"
    if not isinstance(request, dict):
        return None, "the request is not an object"
    if not isinstance(request.get("id"), str) or len(request["id"]) > 200:
        return None, "the request has no usable id"
    if request.get("op") not in ("run", "warm", "save", "restore"):
        return request, "unsupported op"
    worker.identity = request["id"]
    if request["op"] == "warm":
        return request, load("warmth").fault(worker, request)
    if request["op"] != "run":
        return request, ""
    if not isinstance(request.get("code"), str):
        return request, "code is not a string"
    if not isinstance(request.get("inputs"), (dict, type(None))):
        return request, "inputs is not an object"
    if not isinstance(request.get("externals"), (dict, type(None))):
        return request, "externals is not an object"
    return request, ""


def desk(worker):
    """What offers external tools to its code."""
    if worker.externals is None:
        worker.externals = load("tools").Desk(worker)
    return worker.externals


def offer_externals(worker, offer):
    """Before code runs: what the server offers to it; None = there are none any longer."""
    if offer is None and worker.externals is None:
        return
    try:
        desk(worker).begin(offer)
    except Exception as error:  # no descriptors, no memory: the first time it reads some files
        worker.notes.append("external tools could not be offered (%s)" % values.name(type(error)))
