"""Calls of external tools, as the server has them: what leaves the worker, and what it makes of answers."""

import json
import unittest

from driver import Case, Kernel

OFFER = {"calls": 100, "lists": 10, "arguments": 1 << 20}
TOOLS = {"tools": [{"name": "t", "input": {"type": "object", "properties": {"n": {}}}}]}


class Externals(Case):
    def ask(self, code, cell=1):
        return self.kernel.request(code, externals=dict(OFFER, cell=cell, servers=[{"name": "s", "revision": str(cell)}]))

    def heard(self):
        """(head, arguments) of the next frame of a call."""
        kind, body = self.kernel.raw_next()
        while kind == b"S":
            kind, body = self.kernel.raw_next()
        self.assertEqual(b"X", kind, body)
        self.assertLessEqual(len(body) + 5, 4096)
        head, _, data = body.partition(b"\n")
        return json.loads(head), data

    def answer(self, cell, number, value, total=100, slowly=False):
        body = b"%d %d %d\n" % (cell, number, total) + json.dumps(value).encode()
        data = b"x" + len(body).to_bytes(4, "big") + body
        for piece in ([data[i : i + 1] for i in range(len(data))] if slowly else [data]):
            self.kernel.raw(piece)

    def listed(self, cell):
        head, _ = self.heard()
        self.assertEqual(("list", cell, "s"), (head["op"], head["cell"], head["server"]))
        self.answer(cell, head["id"], TOOLS)

    def test_answers(self):
        identity = self.ask("[externals.s.t(n=1), externals.s.t(n=2)]")
        self.listed(1)
        head, data = self.heard()
        self.assertEqual(("call", "s", "t", 7, b'{"n":1}'), (head["op"], head["server"], head["tool"], head["size"], data))
        self.answer(9, head["id"], {"value": "of another cell"})
        self.answer(1, head["id"] + 7, {"value": "of no call"})
        self.answer(1, head["id"], {"value": 10}, slowly=True)
        head, data = self.heard()
        self.assertEqual(100, head["taken"])
        self.answer(1, head["id"], {"value": 20})
        self.assertEqual([10, 20], self.kernel.result(identity)["output"])
        # Between the calls, and before the next is run, an answer is too late, and an interrupt is not.
        self.answer(1, head["id"], {"value": "late"})
        self.assertEqual("ok", self.kernel.run("1")["status"])

    def test_pieces(self):
        identity = self.ask("externals.s.t('y' * 9000)", 2)
        self.listed(2)
        head, data = self.heard()
        while len(data) < head["size"]:
            more, rest = self.heard()
            self.assertEqual(("more", head["id"]), (more["op"], more["id"]))
            data += rest
        self.assertEqual({"n": "y" * 9000}, json.loads(data))
        self.answer(2, head["id"], {"fault": "late", "text": "no answer"})
        result = self.kernel.result(identity)
        self.assertIn("ToolError: s.t: no answer", result["error"])

    def test_interrupt(self):
        identity = self.ask("try:\n    externals.s.t()\nexcept KeyboardInterrupt:\n    print('stopped')", 3)
        self.listed(3)
        head, _ = self.heard()
        self.kernel.control("interrupt", wait=False)
        told, _ = self.heard()
        self.assertEqual(("cancel", head["id"]), (told["op"], told["id"]))
        self.assertTrue(self.kernel.result(identity)["interrupted"])


if __name__ == "__main__":
    unittest.main()
