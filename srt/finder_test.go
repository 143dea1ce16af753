package srt

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"os"
	"path"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"mcp-sandbox/allowlist"
)

// object is what a made-up ELF file asks for.
type object struct {
	interpreter    string
	needed         []string
	rpath, runpath string
	machine        elf.Machine // zero: EM_X86_64
}

// bytes writes as much of an ELF file as decides on its libraries: it could not run.
func (o object) bytes() []byte {
	const header, program, section = 64, 56, 64
	if o.machine == 0 {
		o.machine = elf.EM_X86_64
	}
	names := []byte{0}
	var dynamic []elf.Dyn64
	add := func(tag elf.DynTag, text string) {
		if text != "" {
			dynamic = append(dynamic, elf.Dyn64{Tag: int64(tag), Val: uint64(len(names))})
			names = append(append(names, text...), 0)
		}
	}
	for _, n := range o.needed {
		add(elf.DT_NEEDED, n)
	}
	add(elf.DT_RPATH, o.rpath)
	add(elf.DT_RUNPATH, o.runpath)
	dynamic = append(dynamic, elf.Dyn64{})

	const sectionNames = "\x00.dynamic\x00.dynstr\x00.shstrtab\x00"
	interpreter := append([]byte(o.interpreter), 0)
	at := uint64(header + program)
	place := func(size int) uint64 { at += uint64(size); return at - uint64(size) }
	interpreterAt, dynamicAt := place(len(interpreter)), place(16*len(dynamic))
	namesAt, sectionNamesAt := place(len(names)), place(len(sectionNames))
	programs := uint16(1)
	if o.interpreter == "" {
		programs = 0
	}
	var b bytes.Buffer
	write := func(v any) { _ = binary.Write(&b, binary.LittleEndian, v) } // a Buffer takes all
	write(elf.Header64{
		Ident: [16]byte{0x7f, 'E', 'L', 'F', byte(elf.ELFCLASS64), byte(elf.ELFDATA2LSB), 1},
		Type:  uint16(elf.ET_DYN), Machine: uint16(o.machine), Version: 1, Phoff: header, Shoff: at,
		Ehsize: header, Phentsize: program, Phnum: programs, Shentsize: section, Shnum: 4, Shstrndx: 3,
	})
	write(elf.Prog64{Type: uint32(elf.PT_INTERP), Off: interpreterAt, Filesz: uint64(len(interpreter))})
	b.Write(interpreter)
	write(dynamic)
	b.Write(names)
	b.WriteString(sectionNames)
	write([]elf.Section64{
		{},
		{Name: 1, Type: uint32(elf.SHT_DYNAMIC), Off: dynamicAt, Size: uint64(16 * len(dynamic)), Link: 2, Entsize: 16},
		{Name: 10, Type: uint32(elf.SHT_STRTAB), Off: namesAt, Size: uint64(len(names))},
		{Name: 18, Type: uint32(elf.SHT_STRTAB), Off: sectionNamesAt, Size: uint64(len(sectionNames))},
	})
	return b.Bytes()
}

// system is a tree of files: an object, a text, or a link, which begins with "-> ".
type system map[string]any

func (s system) write(t *testing.T) string {
	t.Helper()
	root := t.TempDir()
	put := func(name string, do func(at string) error) {
		at := root + name
		if err := errors.Join(os.MkdirAll(filepath.Dir(at), 0o755), do(at)); err != nil {
			t.Fatal(err)
		}
	}
	for name, what := range s { // links of directories first, for what lies below them
		if text, ok := what.(string); ok {
			if target, ok := strings.CutPrefix(text, "-> "); ok {
				put(name, func(at string) error { return os.Symlink(target, at) })
			}
		}
	}
	for name, what := range s {
		switch what := what.(type) {
		case object:
			put(name, func(at string) error { return os.WriteFile(at, what.bytes(), 0o755) })
		case string:
			if !strings.HasPrefix(what, "-> ") {
				put(name, func(at string) error { return os.WriteFile(at, []byte(what), 0o755) })
			}
		}
	}
	return root
}

const testLoader = "/lib64/ld.so"

// findIn looks for w in a system, and returns what is shown, but for the warden, and what is
// missing with the reason.
func findIn(t *testing.T, s system, w wanted) (shown, missing []string) {
	t.Helper()
	f, err := newFinder(s.write(t))
	if err != nil {
		t.Fatal(err)
	}
	w.program = wholeList(t).Program
	p := f.programs(w)
	for _, s := range p.shown {
		switch {
		case s.Guest == guestWarden:
		case s.Host == selfExe:
			shown = append(shown, "this binary at "+s.Guest)
		case s.Host != s.Guest && path.Base(s.Host) == w.program(path.Base(s.Guest)):
			shown = append(shown, s.Host+" at "+s.Guest)
		case s.Host != s.Guest:
			t.Errorf("%s is shown at %s", s.Host, s.Guest)
		default:
			shown = append(shown, s.Guest)
		}
	}
	for _, m := range p.missing() {
		missing = append(missing, m.String())
	}
	return shown, missing
}

func TestFinder(t *testing.T) {
	for _, tt := range []struct {
		name    string
		system  system
		wanted  wanted
		shown   []string
		missing []string
	}{
		{"merged /usr, alternatives, versions of libraries", system{
			"/bin": "-> usr/bin", "/lib": "-> usr/lib", "/lib64": "-> usr/lib64",
			"/usr/lib64/ld.so": "-> ../lib/x86_64-linux-gnu/ld-2.so", "/usr/lib/x86_64-linux-gnu/ld-2.so": object{},
			"/usr/bin/cat":                        object{interpreter: testLoader, needed: []string{"libc.so.6"}},
			"/usr/bin/gawk":                       object{interpreter: testLoader, needed: []string{"libm.so.6"}},
			"/usr/bin/awk":                        "-> /etc/alternatives/awk",
			"/etc/alternatives/awk":               "-> /usr/bin/mawk",
			"/usr/bin/mawk":                       object{interpreter: testLoader, needed: []string{"libnone.so"}},
			"/usr/lib/x86_64-linux-gnu/libc.so.6": "-> libc-2.so", "/usr/lib/x86_64-linux-gnu/libc-2.so": object{needed: []string{"ld-2.so"}},
			"/usr/lib/x86_64-linux-gnu/libm.so.6": object{needed: []string{"libc.so.6"}},
		}, wanted{commands: []string{"awk", "cat"}}, []string{
			"/usr/bin/gawk at /usr/bin/awk", "/usr/bin/cat", "/usr/bin/gawk", "/usr/lib/x86_64-linux-gnu/ld-2.so", "/usr/lib/x86_64-linux-gnu/libc.so.6",
			"/usr/lib/x86_64-linux-gnu/libm.so.6", "/usr/lib64/ld.so",
		}, nil},
		{"one binary of many names, static", system{
			"/bin/busybox": object{}, "/bin/cat": "-> /bin/busybox", "/usr/bin/find": "-> ../../bin/busybox",
		}, wanted{commands: []string{"cat", "find", "jq"}}, []string{
			"/bin/cat", "/usr/bin/find",
		}, []string{"jq (not installed; the package jq has it)"}},
		{"configured directories", system{
			"/etc/ld.so.conf": "# c\ninclude ld.so.conf.d/*.conf\n/opt/last\n", "/etc/ld.so.conf.d/a.conf": "/opt/a # x\n", "/etc/ld.so.conf.d/b.txt": "/opt/b\n",
			"/usr/bin/tree": object{needed: []string{"liba.so", "libl.so"}}, "/opt/a/liba.so": object{}, "/usr/lib/liba.so": object{},
			"/opt/last/libl.so": object{}, "/usr/lib/libl.so": object{},
		}, wanted{commands: []string{"tree"}}, []string{
			"/opt/a/liba.so", "/opt/last/libl.so", "/usr/bin/tree",
		}, nil},
		{"RPATH goes on to the libraries' libraries, RUNPATH does not", system{
			"/usr/bin/jq": object{rpath: "$ORIGIN/../r", needed: []string{"liba.so"}}, "/usr/r/liba.so": object{needed: []string{"libb.so"}}, "/usr/r/libb.so": object{},
			"/usr/bin/xxd": object{runpath: "${ORIGIN}/../x:.", needed: []string{"libc.so"}}, "/usr/x/libc.so": object{needed: []string{"libd.so"}}, "/usr/x/libd.so": object{},
		}, wanted{commands: []string{"jq", "xxd"}}, []string{
			"/usr/bin/jq", "/usr/r/liba.so", "/usr/r/libb.so",
		}, []string{"xxd (its library libd.so is not installed; the package xxd has it)"}},
		{"other processors and newer ones", system{
			"/usr/bin/zip": object{needed: []string{"libz.so"}}, "/lib64/libz.so": object{machine: elf.EM_386}, "/usr/lib/libz.so": object{},
			"/usr/lib/glibc-hwcaps/x86-64-v3/libz.so": object{},
		}, wanted{commands: []string{"zip"}}, []string{
			"/usr/bin/zip", "/usr/lib/glibc-hwcaps/x86-64-v3/libz.so", "/usr/lib/libz.so",
		}, nil},
		{"a script is no program of the list", system{
			"/usr/bin/cat": "#!/bin/sh\n", "/bin/sh": object{}, "/usr/bin/zcat": "#! /bin/sh -e\n", "/usr/bin/tool": "#!/usr/bin/env perl\n",
			"/usr/bin/env": object{}, "/usr/bin/perl": object{}, "/usr/bin/a": "#!/usr/bin/a\n", "/usr/bin/b": "#!sh\n", "/usr/bin/text": "text",
		}, wanted{commands: []string{"cat"}, further: []string{"zcat", "tool", "a", "b", "text"}}, []string{
			"/bin/sh", "/usr/bin/env", "/usr/bin/perl", "/usr/bin/tool", "/usr/bin/zcat",
		}, []string{
			"cat (/usr/bin/cat is a script for /bin/sh; the package coreutils has it)",
			"a (/usr/bin/a is a script: /usr/bin/a is a script: /usr/bin/a is a script: /usr/bin/a is a script: /usr/bin/a is a script for a script)",
			`b (/usr/bin/b is a script: "sh" is not an absolute, clean path)`,
			"text (/usr/bin/text is no program of this kind of system)",
		}},
		{"/usr/local is for the operator's alone", system{
			"/usr/local/bin/jq": object{}, "/usr/local/bin/rg": object{},
		}, wanted{commands: []string{"jq"}, further: []string{"rg"}, helpers: []string{"zstd"}}, []string{
			"/usr/local/bin/rg",
		}, []string{"jq (not installed; the package jq has it)", "zstd (not installed; the package zstd has it)"}},
		{"a broken loader, links in a circle", system{
			"/usr/bin/cat": object{interpreter: "/lib/none.so"}, "/usr/bin/ls": "-> ls", "/usr/bin/which": "#!/bin/sh\n",
		}, wanted{commands: []string{"cat", "ls", "which"}}, []string{
			"this binary at /usr/bin/which",
		}, []string{
			"cat (its loader /lib/none.so is not installed; the package coreutils has it)", "ls (not installed; the package coreutils has it)",
		}},
		{"data", system{
			"/usr/bin/file": object{}, "/usr/share/misc/magic.mgc": "-> ../../lib/file/magic.mgc", "/usr/lib/file/magic.mgc": "x",
			"/etc/localtime": "-> /usr/share/zoneinfo/UTC", "/usr/share/zoneinfo/UTC": "x", "/usr/lib/locale/C.utf8/LC_CTYPE": "x",
		}, wanted{commands: []string{"file"}}, []string{
			"/etc/localtime", "/usr/bin/file", "/usr/lib/locale/C.utf8", "/usr/share/misc/magic.mgc", "/usr/share/zoneinfo",
		}, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			shown, missing := findIn(t, tt.system, tt.wanted)
			if diff := cmp.Diff(tt.shown, shown); diff != "" {
				t.Errorf("shown: %s", diff)
			}
			if diff := cmp.Diff(tt.missing, missing); diff != "" {
				t.Errorf("missing: %s", diff)
			}
		})
	}
}

// What can be executed is code; the rest is data.
func TestFinderExec(t *testing.T) {
	f, err := newFinder(system{"/usr/bin/cat": object{needed: []string{"liba.so"}}, "/usr/lib/liba.so": object{}, "/etc/localtime": "x"}.write(t))
	if err != nil {
		t.Fatal(err)
	}
	want := []Shown{
		{"/etc/localtime", "/etc/localtime", false}, {selfExe, guestWarden, true},
		{"/usr/bin/cat", "/usr/bin/cat", true}, {"/usr/lib/liba.so", "/usr/lib/liba.so", true},
	}
	if diff := cmp.Diff(want, f.programs(wanted{commands: []string{"cat"}, program: wholeList(t).Program}).shown); diff != "" {
		t.Error(diff)
	}
}

// A configuration that includes itself comes to an end, and one that can't be read is told.
func TestLibraryDirs(t *testing.T) {
	if _, err := newFinder(system{"/etc/ld.so.conf": "include /etc/ld.so.conf\n/opt/x\n"}.write(t)); err != nil {
		t.Error(err)
	}
	for _, s := range []system{{"/etc/ld.so.conf/x": ""}, {"/etc/ld.so.conf": "include [\n"}} {
		if _, err := newFinder(s.write(t)); err == nil || !strings.Contains(err.Error(), "ld.so.conf") {
			t.Errorf("%v: %v", s, err)
		}
	}
}

// wholeList is every command that there is.
func wholeList(t testing.TB) *allowlist.List {
	t.Helper()
	list, err := allowlist.New(allowlist.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return list
}
