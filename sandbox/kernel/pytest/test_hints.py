"""What is said after an error that the sandbox may have caused."""

import os
import tempfile
import unittest

from driver import Case, Kernel


class Hints(Case):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        for name in ("sales.csv", "notes.txt"):
            with open(os.path.join(cls.folder.name, name), "w"):
                pass
        cls.kernel = Kernel(workdir=cls.folder.name)

    @classmethod
    def tearDownClass(cls):
        super().tearDownClass()
        cls.folder.cleanup()

    def test_table(self):
        self.ok("import errno, socket, urllib.error")
        for code, hint, texts in (
            ("import no_such_package", "package", ["No package no_such_package", "standard library"]),
            ("raise ModuleNotFoundError('x', name='IPython.display')", "", ["display() is a builtin"]),
            ("import cv2_typo.sub", "package", ["No package cv2_typo is"]),
            ("import os.path.no", "", []),
            ("raise ModuleNotFoundError('x', name=5)", "", []),
            ("open('sale.csv')", "", ["Close names in the working directory: sales.csv."]),
            ("open('other')", "", ["In the working directory there are: notes.txt, sales.csv."]),
            ("open('/mnt/data/sale.csv')", "path", ["Close names in", "sales.csv"]),
            ("open('/mnt/data/zzz')", "path", []),
            ("open('no/such/folder')", "", []),
            ("raise PermissionError(errno.EACCES, 'no', '/x')", "path", []),
            ("raise OSError(errno.EROFS, 'no', '/x')", "path", []),
            ("raise OSError(errno.EROFS, 'no')", "", []),
            ("raise OSError(errno.ENETUNREACH, 'no')", "network", []),
            ("raise socket.gaierror(-3, 'no')", "network", []),
            ("try:\n    raise socket.gaierror(-3, 'no')\nexcept OSError as e:\n    raise ValueError from e", "network", []),
            ("raise urllib.error.URLError(socket.gaierror(-3, 'no'))", "network", []),
            ("raise ConnectionRefusedError(errno.ECONNREFUSED, 'a port of one\\'s own')", "", []),
            ("!pip install numpy", "package", ["a notebook's", "leave it out"]),
            ("%pip install numpy", "package", ["a notebook's", "leave it out"]),
            ("! python -m pip install numpy", "package", ["a notebook's", "leave it out"]),
            ("%matplotlib inline", "", ["a notebook's", "leave them out"]),
            ("!ls", "", ["a notebook's", "subprocess.run()"]),
            ("x = !ls", "", []),
            ("input()", "", ["`inputs`"]),
            ("1 / 0", "", []),
            ("class E(OSError):\n    errno = property(lambda s: 1 / 0)\nraise E", "", []),
        ):
            with self.subTest(code=code):
                result = self.kernel.run(code)
                self.assertEqual(("error", hint), (result["status"], result["hint"]), result)
                said = result["error"].partition("\n\n")[2] if "direct cause" not in result["error"] else ""
                self.assertEqual(bool(texts), bool(said), said)
                for text in texts:
                    self.assertIn(text, said)

    def test_many(self):
        self.ok("import os, tempfile\nfolder = tempfile.mkdtemp()\nfor i in range(100): open(os.path.join(folder, str(i)), 'w').close()")
        error = self.fails("open(os.path.join(folder, 'x'))", "and 90 more")
        self.assertLess(len(error), 400)
        self.ok("import shutil; shutil.rmtree(folder)")


if __name__ == "__main__":
    unittest.main()
