"""Small repairs of library modules, made when user code imports them and not before."""

import sys


class Finder:
    """A meta path finder that finds nothing itself: it lets the others find, then repairs."""

    def __init__(self, repairs):
        self.repairs = repairs  # {module name: function of the module}
        for name in list(repairs):
            if name in sys.modules:
                repairs.pop(name)(sys.modules[name])
        sys.meta_path.insert(0, self)

    def find_spec(self, name, path=None, target=None):
        repair = self.repairs.pop(name, None)
        if repair is None:
            return None
        for finder in sys.meta_path:
            if finder is not self and hasattr(finder, "find_spec"):
                spec = finder.find_spec(name, path, target)
                if spec is not None:
                    if hasattr(spec.loader, "exec_module"):
                        spec.loader = Loader(spec.loader, repair)
                    return spec
        return None


class Loader:
    """The module's own loader, with the repair behind it; the module never sees this one."""

    def __init__(self, loader, repair):
        self.loader = loader
        self.repair = repair

    def create_module(self, spec):
        return self.loader.create_module(spec)

    def exec_module(self, module):
        module.__spec__.loader = module.__loader__ = self.loader
        self.loader.exec_module(module)
        try:
            self.repair(module)
        except Exception:
            pass  # another version's insides: the module works, unrepaired


def multiprocessing_context(module):
    """Default to fork on Linux, as before 3.14: a forkserver can't see what calls defined
    in __main__. Only the default: set_start_method still works."""
    if sys.platform == "linux":
        module._default_context._default_context = module._concrete_contexts["fork"]


def inspect_for(sources):
    def repair(module):
        plain = module.getfile

        def getfile(object):
            """Work out which source or compiled file an object was defined in."""
            try:
                return plain(object)
            except (OSError, TypeError):
                # __main__ has no file (multiprocessing would run it), its classes do.
                if isinstance(object, type) and object.__module__ == "__main__":
                    name = sources.defining(object)
                    if name is not None:
                        return name
                raise

        module.getfile = getfile

    return repair
