"""A kernel as one should not be written: it shares its modules and its channel
with user code, and its replies carry no id."""
import ast, json, os, struct, sys

sys.path.insert(0, os.getcwd())
scope = {"__name__": "__main__"}


def run(request):
    if request.get("inputs") is not None:
        scope["inputs"] = request["inputs"]
    tree, value = ast.parse(request["code"]), None
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, "<call>", "exec"), scope)
    if last is not None:
        value = eval(compile(ast.Expression(last.value), "<call>", "eval"), scope)
    return {"status": "ok", "output": value, "return_value": scope.pop("_return", None)}


while True:
    head = os.read(3, 4)
    if not head:
        break
    body = b""
    while len(body) < struct.unpack(">I", head)[0]:
        body += os.read(3, 1 << 16)
    try:
        reply = run(json.loads(body))
    except Exception as e:
        reply = {"status": "error", "error": repr(e)}
    out = json.dumps(reply).encode()
    os.write(4, struct.pack(">I", len(out)) + out)
