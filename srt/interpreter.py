# Runs in the chosen interpreter, outside the wall, before any session: says
# what it is, and compiles the kernel's sources (a JSON object on stdin).
#
# It is started with -S: .pth files and sitecustomize, which a guest may be able
# to write (an editable install names its own directory), run behind the wall
# alone. What site would have found is found by looking.
import base64
import glob
import importlib.util
import json
import marshal
import os
import sys
import sysconfig


def environment(program):
    """The virtual environment's directory and settings, if the program belongs to one."""
    bin = os.path.dirname(program)
    for folder in (os.path.dirname(bin), bin):
        try:
            with open(os.path.join(folder, "pyvenv.cfg"), encoding="utf-8", errors="replace") as file:
                pairs = [line.partition("=") for line in file]
        except OSError:
            continue
        return folder, {key.strip().lower(): value.strip() for key, _, value in pairs}
    return None, {}


def below(program):
    """The interpreter that environments, one in another, are made of."""
    for _ in range(8):
        home = environment(program)[1].get("home")
        if not home:
            break
        names = ("python%d.%d" % sys.version_info[:2], "python3", "python")
        found = [path for path in (os.path.join(home, name) for name in names) if os.access(path, os.X_OK)]
        if not found:
            break
        program = found[0]
    return os.path.realpath(program)


venv, settings = environment(sys.executable)
bases = {sys.prefix, sys.base_prefix, sys.exec_prefix, sys.base_exec_prefix}

# Where packages may lie: of the environment, and of the Python below it.
roots = {venv} if venv else set(bases)
if settings.get("include-system-site-packages", "").lower() == "true":
    roots |= bases
version = "python%d.%d" % sys.version_info[:2]
places = ("lib/%s/site-packages", "lib64/%s/site-packages", "local/lib/%s/dist-packages", "lib/%s/dist-packages")
folders = {os.path.join(root, place % version) for root in roots for place in places}
folders |= {os.path.join(root, "lib/python3/dist-packages") for root in roots}
folders = {folder for folder in folders if os.path.isdir(folder)}
code = folders | {os.path.dirname(os.__file__)}

# What the wall must show: where the program, its standard library and its
# packages lie, through all symbolic links.
prefixes = bases | {os.path.dirname(os.__file__)} | ({venv} if venv else set())
program = sys.executable
while os.path.islink(program):
    program = os.path.normpath(os.path.join(os.path.dirname(program), os.readlink(program)))
    prefixes.add(os.path.dirname(os.path.dirname(program)))
if venv:
    prefixes.add(os.path.dirname(os.path.dirname(os.path.realpath(sys.executable))))
prefixes |= {os.path.realpath(p) for p in prefixes}
code |= {os.path.realpath(p) for p in code}

packages = {}
for folder in sorted(folders):
    for name in os.listdir(folder):
        if name.endswith(".dist-info") and "-" in name:
            package, _, release = name[: -len(".dist-info")].rpartition("-")
            packages.setdefault(package.lower().replace("_", "-"), release)

# The pip that every Python brings along, as a wheel, from which it can be run.
bundled = [os.path.join(os.path.dirname(os.__file__), "ensurepip", "_bundled"), sysconfig.get_config_var("WHEEL_PKG_DIR") or ""]
pips = sorted(pip for folder in bundled for pip in glob.glob(os.path.join(folder, "pip-*.whl")))

header = importlib.util.MAGIC_NUMBER + bytes(12)  # an undated, unchecked .pyc
compiled = {}
for name, source in json.load(sys.stdin).items():
    body = compile(source, "<mcp-sandbox>/" + name, "exec", dont_inherit=True, optimize=2)
    compiled[name + "c"] = base64.b64encode(header + marshal.dumps(body)).decode("ascii")

json.dump(
    {
        "executable": sys.executable,
        "base": below(sys.executable),
        "pip": pips[-1] if pips else "",
        "implementation": sys.implementation.name,
        "version": list(sys.version_info[:3]),
        "prefixes": sorted(prefixes),
        "code": sorted(code),
        "packages": ["%s %s" % p for p in packages.items()],
        "compiled": compiled,
    },
    sys.stdout,
)
