package srt

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"crypto/md5"
	"crypto/sha256"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// dataTree fills dir with what an analyst or a programmer has lying about, the awkward
// names included. It is the same at every call but for the names of its owner.
func dataTree(t testing.TB, dir string) {
	t.Helper()
	files := map[string]string{}
	tables(files)
	logs(files)
	documents(files)
	sources(files)
	oddities(files)
	files["data/MD5SUMS"] = fmt.Sprintf("%x  data/sales.csv\n%x  data/customers.csv\n",
		md5.Sum([]byte(files["data/sales.csv"])), md5.Sum([]byte(files["data/customers.csv"])))
	files["data/SHA256SUMS"] = fmt.Sprintf("%x  data/sales.csv\n%064d  data/customers.csv\n",
		sha256.Sum256([]byte(files["data/sales.csv"])), 0) // the second is wrong
	packed(t, files)
	writeTree(t, dir, files)
	for link, to := range map[string]string{
		"readme-link": "README.md", "src/current": "pkg", "broken": "nowhere/at/all", "up": "..", "data/latest.csv": "sales.csv",
	} {
		if err := os.Symlink(to, filepath.Join(dir, link)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(filepath.Join(dir, "empty-dir"), 0o755); err != nil {
		t.Fatal(err)
	}
	age(t, dir)
}

// writeTree writes files; scripts can be executed, all else can't.
func writeTree(t testing.TB, dir string, files map[string]string) {
	t.Helper()
	for name, content := range files {
		path, mode := filepath.Join(dir, name), fs.FileMode(0o644)
		if strings.HasPrefix(content, "#!") {
			mode = 0o755
		}
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), mode); err != nil {
			t.Fatal(err)
		}
	}
}

// age spreads the files over the last forty days, so that -mtime and ls -t have something
// to tell.
func age(t testing.TB, dir string) {
	t.Helper()
	var all []string
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() {
			all = append(all, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(all)
	// Half a day off the full ones: a run that crosses midnight must not change the answer.
	now := time.Now().Add(-12 * time.Hour)
	for i, path := range all {
		when := now.Add(-time.Duration(i*7%40)*24*time.Hour - time.Duration(i)*time.Minute)
		if err := os.Chtimes(path, when, when); err != nil {
			t.Fatal(err)
		}
	}
}

func tables(files map[string]string) {
	r := rand.New(rand.NewPCG(1, 2))
	regions := []string{"north", "south", "east", "west"}
	products := []string{"widget", "gadget", "gizmo", "doohickey, large"}
	var sales, crlf, wide strings.Builder
	sales.WriteString("date,region,product,qty,price\n")
	crlf.WriteString("id,name\r\n")
	for i := range 400 {
		product := products[r.IntN(3)]
		fmt.Fprintf(&sales, "2024-%02d-%02d,%s,%s,%d,%d.%02d\n", 1+r.IntN(12), 1+r.IntN(28), regions[r.IntN(4)], product, r.IntN(50), r.IntN(200), r.IntN(100))
		fmt.Fprintf(&wide, "%d\t%s\t%d\t%s\n", i, products[r.IntN(4)], r.IntN(1000), regions[r.IntN(4)])
	}
	for i := range 20 {
		fmt.Fprintf(&crlf, "%d,name %d\r\n", i, i)
	}
	files["data/sales.csv"], files["data/crlf.csv"], files["data/wide.tsv"] = sales.String(), crlf.String(), wide.String()
	files["data/customers.csv"] = "id;name;email\n1;Ada;ada@example.com\n2;Grace;grace@example.org\n3;Linus;\n4;\"O'Hara; Scarlett\";tara@example.net\n"
	files["data/empty.csv"] = ""
	files["data/no newline.csv"] = "a,b,c\n1,2,3"
	files["data/semi;colon.csv"] = "k,v\nx,1\n"
	files["data/numbers.txt"] = "10\n9\n100\n1e3\n-5\n007\n3.14\n\n9\n"
	files["data/versions.txt"] = "1.10.0\n1.9.3\n1.2.0-rc1\n2.0\n1.2.0\n"
	files["data/sizes.txt"] = "4K\n1.5M\n900\n2G\n12K\n"
	files["data/words.txt"] = "pear\nApple\nbanana\napple\nÄpfel\nzebra\nbanana\napple\n"
}

func logs(files map[string]string) {
	r := rand.New(rand.NewPCG(3, 4))
	levels := []string{"INFO", "INFO", "INFO", "DEBUG", "WARN", "ERROR"}
	var app, access, big strings.Builder
	for i := range 3000 {
		fmt.Fprintf(&app, "2024-05-%02dT%02d:%02d:%02dZ %s [worker-%d] request id=%08x took %dms\n",
			1+i/150, i/60%24, i%60, r.IntN(60), levels[r.IntN(6)], r.IntN(8), r.Uint32(), r.IntN(2000))
		if i%97 == 0 {
			app.WriteString("Traceback (most recent call last):\n  File \"app.py\", line 10, in <module>\nValueError: bad | worse; > `x` $(y)\n")
		}
		fmt.Fprintf(&access, "10.0.%d.%d - - [10/May/2024:13:%02d:%02d +0000] \"%s /api/v%d/items?id=%d HTTP/1.1\" %d %d \"-\" \"Mozilla/5.0 (X11; Linux)\"\n",
			r.IntN(4), r.IntN(20), i%60, r.IntN(60), []string{"GET", "POST", "DELETE"}[r.IntN(3)], 1+r.IntN(2), r.IntN(30), []int{200, 200, 200, 301, 404, 500}[r.IntN(6)], r.IntN(9000))
	}
	for i := 0; big.Len() < 5<<20; i++ {
		fmt.Fprintf(&big, "%07d %s event=%d user=u%03d value=%d.%d\n", i, levels[r.IntN(6)], r.IntN(40), r.IntN(200), r.IntN(1000), r.IntN(10))
	}
	files["logs/app.log"], files["logs/access.log"], files["logs/big.log"] = app.String(), access.String(), big.String()
	files["logs/empty.log"] = ""
}

func documents(files map[string]string) {
	var users []string
	var events strings.Builder
	r := rand.New(rand.NewPCG(5, 6))
	for i := range 60 {
		users = append(users, fmt.Sprintf(`  {"id": %d, "name": "user %d", "age": %d, "tags": ["t%d", "x|y"], "active": %t, "address": {"city": %q, "zip": null}}`,
			i, i, 18+r.IntN(60), r.IntN(5), r.IntN(2) == 0, []string{"Köln", "Oslo", "東京"}[r.IntN(3)]))
		fmt.Fprintf(&events, `{"ts":%d,"type":%q,"user":{"id":%d},"amount":%d.5}`+"\n", 1715000000+i*61, []string{"click", "view", "buy"}[r.IntN(3)], r.IntN(10), r.IntN(100))
	}
	files["json/users.json"] = "[\n" + strings.Join(users, ",\n") + "\n]\n"
	files["json/events.jsonl"] = events.String()
	files["json/broken.json"] = `{"a": [1, 2,}` + "\n"
	files["json/config.json"] = `{"server":{"host":"0.0.0.0","port":8080,"tls":false},"features":["a","b"],"limits":{"cpu":2,"mem":"512Mi"},"a-b":{"c d":1}}` + "\n"
	files["package.json"] = `{"name":"demo","version":"1.4.2","scripts":{"test":"jest","build":"tsc -p ."},"dependencies":{"left-pad":"^1.3.0","react":"18.2.0"},"devDependencies":{"jest":"29.0.0"}}` + "\n"
	files["README.md"] = "# Demo\n\nA demo; with `code` and $VARIABLES.\n\n## Usage\n\n- run `make`\n- then test\n\n## License\n\nMIT\n"
	files["doc/old.txt"] = "one\ntwo\nthree\nfour\nfive\n"
	files["doc/new.txt"] = "one\n2\nthree\nfour\nfive\nsix\n"
	files["doc/page.html"] = "<html>\n<head><title>A &amp; B</title></head>\n<body>\n<a href=\"x.html\">x</a>\n<a href='y.html'>y</a>\n</body>\n</html>\n"
	files["config.ini"] = "; comment\n[main]\nkey = value\npath=/usr/local\n\n[other]\nkey = other value\n"
	files["config.yaml"] = "name: demo\nenv:\n  - A=1\n  - B=2\n# end\n"
	files[".env.example"] = "API_KEY=\nDEBUG=true\n"
	files[".gitignore"] = "node_modules/\n*.log\n"
}

func sources(files map[string]string) {
	files["src/main.go"] = "package main\n\nimport (\n\t\"fmt\"\n\t\"os\"\n)\n\n// main says hello.\nfunc main() {\n\tif len(os.Args) > 1 && os.Args[1] != \"\" {\n\t\tfmt.Println(\"hello;\", os.Args[1]) // TO" + "DO: greet better\n\t}\n}\n"
	files["src/pkg/util.go"] = "package pkg\n\n// Add adds.\nfunc Add(a, b int) int { return a + b }\n\nfunc sub(a, b int) int {\n\treturn a - b\n}\n"
	files["src/pkg/util_test.go"] = "package pkg\n\nimport \"testing\"\n\nfunc TestAdd(t *testing.T) {\n\tif Add(1, 2) != 3 {\n\t\tt.Fatal(\"no\")\n\t}\n}\n"
	files["src/app.py"] = "#!/usr/bin/env python3\n\"\"\"App.\"\"\"\nimport os\nimport json\nfrom typing import List\n\n\nclass App:\n    def __init__(self, path: str):\n        self.path = path  # FIX" + "ME: check\n\n    def run(self) -> List[str]:\n        return os.listdir(self.path)\n\n\ndef main():\n    print(json.dumps(App('.').run()))\n\n\nif __name__ == '__main__':\n    main()\n"
	files["src/web/app.js"] = "const x = () => { return `a ${1 + 1}`; };\nimport React from 'react';\nconsole.log(x() || 'none');\nexport default x;\n"
	files["src/web/style.css"] = "body { color: #333; }\na:hover > b { color: red; }\n"
	files["src/web/data.min.js"] = "var a=1;" + strings.Repeat("b();", 500) + "\n"
	files["src/legacy/old.c"] = "#include <stdio.h>\n#define MAX(a,b) ((a) > (b) ? (a) : (b))\nint main(void) {\n  printf(\"%d\\n\", MAX(1, 2));\n  return 0;\n}\n"
	files["src/legacy/Makefile"] = "all: old\n\nold: old.c\n\t$(CC) -o $@ $<\n"
	files["node_modules/left-pad/index.js"] = "module.exports = require('x');\n"
	files["node_modules/left-pad/package.json"] = `{"name":"left-pad","version":"1.3.0"}` + "\n"
}

func oddities(files map[string]string) {
	blob := make([]byte, 4096)
	r := rand.New(rand.NewPCG(7, 8))
	for i := range blob {
		blob[i] = byte(r.Uint32())
	}
	copy(blob, "\x7fELF\x02\x01\x01")
	copy(blob[1000:], "\x00an embedded string\x00/usr/lib/libdemo.so.1\x00")
	files["bin/blob.bin"] = string(blob)
	files["bin/latin1.txt"] = "caf\xe9\nna\xefve\n"
	files["bin/nul.txt"] = "before\x00after\nsecond line\n"
	files["bin/utf16.txt"] = "\xff\xfeh\x00i\x00\n\x00"
	files["unicode/größe.txt"] = "groß\nGRÖSSE\n"
	files["unicode/文件.txt"] = "你好，世界\nこんにちは\n"
	files["unicode/naïve café.md"] = "déjà vu\n"
	files["odd/two  blanks.txt"] = "x y\n"
	files["odd/$HOME.txt"] = "dollar\n"
	files["odd/it's.txt"] = "apostrophe\n"
	files["odd/[brackets].txt"] = "brackets\n"
	files["odd/star*.txt"] = "star\n"
	files["odd/back\\slash.txt"] = "backslash\n"
	files["odd/a;b|c&d.txt"] = "operators\n"
	files["odd/.hidden.txt"] = "hidden\n"
	files["dash/-n.txt"] = "looks like an option\n"
	files["dash/--help"] = "looks like a long one\n"
	files["dash/plain.txt"] = "plain\n"
	files["odd/long-line.txt"] = strings.Repeat("0123456789", 1000) + "\n"
	files["odd/tabs.txt"] = "a\tb\tc\n  indented\t x  \n\n\n\ntrailing  \n"
	files["odd/dup.txt"] = "a\na\nb\nb\nb\na\n"
}

// packed adds archives of what is there, packed by Go where it can, so that the tools
// that read them did not write them.
func packed(t testing.TB, files map[string]string) {
	t.Helper()
	var tarred, zipped, zlibbed bytes.Buffer
	tw, zw := tar.NewWriter(&tarred), zip.NewWriter(&zipped)
	when := time.Date(2024, 3, 1, 12, 0, 0, 0, time.UTC)
	for _, name := range []string{"README.md", "config.ini", "src/main.go", "src/pkg/util.go", "data/customers.csv", "unicode/größe.txt"} {
		content := files[name]
		w, err := zw.CreateHeader(&zip.FileHeader{Name: name, Method: zip.Deflate, Modified: when})
		if err == nil {
			_, err = w.Write([]byte(content))
		}
		if err == nil {
			err = tw.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: int64(len(content)), ModTime: when, Uname: "dev", Gname: "dev"})
		}
		if err == nil {
			_, err = tw.Write([]byte(content))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	gz := gzip.NewWriter(&zlibbed)
	if err := tw.WriteHeader(&tar.Header{Name: "link", Typeflag: tar.TypeSymlink, Linkname: "README.md", ModTime: when}); err != nil {
		t.Fatal(err)
	}
	if err := tw.Close(); err != nil {
		t.Fatal(err)
	}
	if err := zw.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := gz.Write(tarred.Bytes()); err != nil {
		t.Fatal(err)
	}
	if err := gz.Close(); err != nil {
		t.Fatal(err)
	}
	files["dist/demo.tar"], files["dist/demo.zip"], files["dist/demo.tar.gz"] = tarred.String(), zipped.String(), zlibbed.String()
	files["dist/not-really.zip"] = "this is no archive\n"
	for suffix, tool := range map[string][]string{"bz2": {"bzip2", "-c"}, "xz": {"xz", "-c"}, "zst": {"zstd", "-q", "-c"}} {
		cmd := exec.Command(tool[0], tool[1:]...)
		cmd.Stdin = bytes.NewReader(tarred.Bytes())
		out, err := cmd.Output()
		required(t, err == nil, fmt.Sprintf("%s: %v", tool[0], err))
		files["dist/demo.tar."+suffix] = string(out)
	}
}
