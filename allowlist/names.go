package allowlist

import (
	"slices"
	"strings"
	"unicode/utf8"
)

// advice is what to do in place of a command that is not on the list.
type advice struct {
	names string // separated by blanks
	use   string // the command of the list that it speaks of; "" = none
	says  string
}

// advices is what models and people type most, besides what is on the list.
var advices = []advice{
	{"python python2 python3 ipython pip pip3 uv node deno bun npm npx perl ruby php R Rscript lua go cargo gcc make", "", "use the tool execute_python to run code"},
	{"cd pushd popd dirs", "", "use paths: each command starts in " + Dir + ", as in `ls " + Dir + "/data`"},
	{"less more most pg bat batcat view vi vim nano emacs", "cat", "use cat, head or tail"},
	{"nl", "cat", "use `cat -n`"},
	{"tac rev", "", "use execute_python"},
	{"rg ag ack zgrep", "grep", "use `grep -rn PATTERN .`"},
	{"egrep", "grep", "use `grep -E`"},
	{"fgrep", "grep", "use `grep -F`"},
	{"fd fdfind locate", "find", "use `find . -name '*.txt'`"},
	{"ll", "ls", "use `ls -l`"},
	{"la", "ls", "use `ls -la`"},
	{"l", "ls", "use ls"},
	{"gawk mawk nawk", "awk", "use awk"},
	{"gsed", "sed", "use sed"},
	{"gtar bsdtar", "tar", "use tar"},
	{"zcat gunzip gzcat bzcat xzcat zstdcat gzip bzip2 xz zstd 7z unrar", "tar", "use `tar -tf` for archives of files, or execute_python for a compressed file"},
	{"zipinfo", "unzip", "use `unzip -Z`"},
	{"hexdump hd", "xxd", "use xxd or `od -c`"},
	{"sha1sum", "shasum", "use `shasum -a 1`"},
	{"sha224sum sha384sum", "shasum", "use `shasum -a` with the number of bits"},
	{"md5", "md5sum", "use md5sum"},
	{"base64 base32 cksum sum b2sum openssl", "", "use execute_python (base64, hashlib)"},
	{"du df", "find", "use `find . -type f -printf '%s %p\\n'` for the sizes of files"},
	{"readlink realpath", "ls", "use `ls -l`, which shows where a link points"},
	{"basename dirname", "find", "use find with `-printf '%f\\n'` or `-printf '%h\\n'`"},
	{"file-roller exa eza lsd", "ls", "use `ls -l`"},
	{"test [ [[", "ls", "use ls or stat, which fail if there is no such file"},
	{"true false :", "", "leave it out: a command that fails reports its exit code"},
	{"id whoami groups logname", "printenv", "use `printenv USER`"},
	{"hostname hostnamectl arch nproc lscpu", "uname", "use `uname -a`"},
	{"set", "env", "use env"},
	{"type whereis command hash", "which", "use which"},
	{"man info help apropos", "", "use the command's own --help"},
	{"xargs parallel", "find", "use file name patterns, `grep -r`, or several commands; for all else execute_python"},
	{"tee sponge", "", "leave it out: nothing can be written here, and the output is returned"},
	{"rm mv cp ln mkdir rmdir touch chmod chown chgrp truncate dd install mktemp shred split csplit rsync patch ed", "", "commands can only read here: use execute_python to change files"},
	{"column paste join comm fold fmt pr expand unexpand seq shuf tsort numfmt factor bc dc expr", "awk", "use awk, or execute_python"},
	{"yq xmllint csvcut csvkit mlr xsv q sqlite3 duckdb", "", "use execute_python"},
	{"curl wget ssh scp sftp nc ncat telnet ftp ping dig host nslookup", "", "commands have no network"},
	{"git hg svn gh", "", "history can't be read here: read the files themselves with cat, grep and find"},
	{"ps top htop kill pkill pgrep jobs bg fg wait lsof free uptime vmstat mount", "", "there are no other processes to see here"},
	{"bash sh zsh dash fish ksh eval exec source . builtin enable fc sudo su doas setsid nohup nice ionice timeout stdbuf script watch strace chroot unshare busybox", "", "write the command itself: nothing runs commands for another here, and the tool has a time limit of its own"},
	{"sleep", "", "leave it out: commands run at once"},
	{"clear reset stty tput history alias unalias trap ulimit umask shopt exit logout return", "", "leave it out: there is no shell and no terminal here"},
	{"export declare typeset local readonly unset let read mapfile readarray getopts shift", "", "there are no variables here: LC_*, LANG and TZ may be put before a command, as in `LC_ALL=C sort f`"},
	{"if then else elif fi for while until do done case esac in select function coproc", "", "there is no shell language here: use file name patterns, find, or awk; for all else execute_python"},
	{"{ }", "", "there is no grouping here: join simple commands with | and &&"},
	{"!", "", "leave it out: a command that fails reports its exit code"},
	{"time", "", "leave it out: the duration is returned"},
}

// keywords are read by a shell before any command is looked for, so that none
// of them can be the name of a program, also one that an operator has added.
var keywords = []string{
	"if", "then", "else", "elif", "fi", "for", "while", "until", "do", "done", "case", "esac", "in", "select", "function", "coproc",
	"time", "{", "}", "!", "[[", "]]", "declare", "typeset", "local", "readonly", "export", "let", "nameref",
}

func (l *List) has(name string) bool {
	_, ok := l.commands[name]
	return ok
}

// names are the commands of the list, for a sentence.
func (l *List) names() string { return strings.Join(l.sorted, ", ") }

// checkName judges the word in the place of the command.
func (l *List) checkName(src string, start, end int) *Error {
	word := src[start:end]
	if l.has(word) && !slices.Contains(keywords, word) {
		return nil
	}
	return refuse(src, start, end, "command", "is not an allowed command: "+l.instead(word))
}

// instead says what to type in place of word.
func (l *List) instead(word string) string {
	for _, a := range advices {
		if (a.use == "" || l.has(a.use)) && slices.Contains(strings.Fields(a.names), word) {
			return a.says
		}
	}
	if plain := strings.NewReplacer(`"`, "", "'", "", `\`, "", "$", "").Replace(word); plain != word || strings.ContainsAny(word, "*?[~") {
		if l.has(plain) {
			return "write the name plainly: " + plain
		}
		return "write a plain name, without quotes, patterns and variables; one of " + l.names()
	}
	if base := word[strings.LastIndexByte(word, '/')+1:]; base != word {
		if l.has(base) {
			return "write the name without a path: " + base
		}
		return "no program is run by its path; write one of " + l.names()
	}
	if strings.ContainsFunc(word, func(r rune) bool { return r >= utf8.RuneSelf }) {
		return "it has characters that look like others, or can't be seen; write one of " + l.names()
	}
	if near := l.nearest(word); near != "" {
		return "did you mean " + near + "? Allowed are " + l.names()
	}
	return "write one of " + l.names()
}

// nearest is the command that differs from word by one slip, or two in a long
// word; "" if none or several do.
func (l *List) nearest(word string) string {
	if len(word) > 16 {
		return ""
	}
	word = strings.ToLower(word)
	slips, near := 1, ""
	if len(word) >= 6 {
		slips = 2
	}
	if len(word) < 3 {
		slips = 0
	}
	for _, name := range l.sorted {
		switch d := distance(word, name); {
		case d < slips || d == slips && near == "":
			slips, near = d, name
		case d == slips:
			near = ""
		}
	}
	return near
}

// distance counts the letters to be added, left out, changed, or swapped with
// the next, that make b of a.
func distance(a, b string) int {
	before, last, row := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range row {
		last[j] = j
	}
	for i := range len(a) {
		row[0] = i + 1
		for j := range len(b) {
			change := 1
			if a[i] == b[j] {
				change = 0
			}
			row[j+1] = min(last[j]+change, last[j+1]+1, row[j]+1)
			if i > 0 && j > 0 && a[i] == b[j-1] && a[i-1] == b[j] {
				row[j+1] = min(row[j+1], before[j-1]+1)
			}
		}
		before, last, row = last, row, before
	}
	return last[len(b)]
}
