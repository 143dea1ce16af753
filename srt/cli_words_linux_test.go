package srt

import (
	"math/rand/v2"
	"strings"
)

// lineMaker makes command lines of which a good part is refused, and of which the rest is
// full of what shells and their imitators read differently.
type lineMaker struct {
	*rand.Rand
	commands []string
}

func pick[T any](m *lineMaker, from ...T) T { return from[m.IntN(len(from))] }

// line is one command line.
func (m *lineMaker) line() string {
	var b strings.Builder
	b.WriteString(pick(m, "", "", "", "", " ", "\t", "\n", "# c\n"))
	for i := 0; ; i++ {
		m.stage(&b)
		if i == 3 || m.IntN(5) < 3 {
			break
		}
		if m.IntN(20) > 0 {
			b.WriteString(pick(m, "|", " | ", "&&", " && ", " |\n", " &&\n\t", "| # c\n", " && \\\n", "\\\n| ", " | \n\n"))
		} else {
			b.WriteString(pick(m, "|\\\n", " |& ", "; ", "\n", "|  |", " & ", "||", "|\\\n|", "&\\\n&"))
		}
	}
	b.WriteString(pick(m, "", "", "", "", "", "", "", "", "", " ", "\n", " # c; id", "\\\n", " #\\\nid", " \\\n# c", ";", " &", "\\", " #c\\"))
	return b.String()
}

func (m *lineMaker) stage(b *strings.Builder) {
	if m.IntN(10) == 0 {
		b.WriteString(pick(m, "LC_ALL=C ", "TZ=UTC ", "LANG=C ", "LC_ALL=C TZ='a b' ", "TZ=$HOME ", "LC_ALL= ", "TZ=\"\\$x\" ", "TZ=~ ", "TZ=*.txt ", "LC_ALL=a\\ b ", "A=1 ", "LC_ALL=C\\\n", "TZ=a:~/b "))
	}
	// Mostly commands whose arguments are free, so that the line is judged by its words.
	name := pick(m, "echo", "echo", "printf", "cat", "ls", "grep", "wc")
	if m.IntN(5) == 0 {
		name = pick(m, m.commands...)
	}
	if m.IntN(60) == 0 {
		name = pick(m, "\\ls", "l\"s\"", "l\\\ns", "$'ls'", "/bin/ls", "id", "'ls'", "!", "time ls", "{", "~")
	}
	b.WriteString(name)
	for range m.IntN(5) {
		b.WriteString(pick(m, " ", " ", " ", " ", "  ", "\t", " \\\n", " \\\n  ", "\\\n"))
		m.word(b)
	}
}

func (m *lineMaker) word(b *strings.Builder) {
	for range 1 + m.IntN(4) {
		m.piece(b)
	}
}

// piece is a part of a word: mostly text, often quoted, rarely what is refused.
func (m *lineMaker) piece(b *strings.Builder) {
	switch n := m.IntN(100); {
	case n < 25:
		b.WriteString(pick(m, "a", "b.txt", "x", "1", "-n", "-", "--", "é", "文件", "foo/bar", ".", "..", "=", "x=", ",", "%s", "@", ":", "+", "^", "]", "}", "a#b", "!", "\u00a0", "\u2028", "ａ", "．", "0x"))
	case n < 42:
		b.WriteString("'" + m.content("'") + "'")
	case n < 60:
		b.WriteString(`"` + m.doubled() + `"`)
	case n < 72:
		b.WriteString(`\` + pick(m, " ", "a", "n", "'", `"`, `\`, "$", "`", "*", "?", "[", "]", "#", "~", "|", ";", "&", ">", "<", "(", ")", "{", "}", "=", "!", "\t", "é", "-", "/", "^", ",", "\n"))
	case n < 78:
		b.WriteString("$'" + pick(m, `\t`, `\n`, `\\`, `\'`, `\"`, "a", `\a`, `\e`, `\x41`, `\101`, `\u00e9`, `\q`, "\t", "$HOME", `\?`, "*", "é", `\c`, "") + pick(m, "", "b", `\t`) + "'")
	case n < 83:
		b.WriteString(pick(m, "$HOME", "${HOME}", "$PWD", "${PWD}", "$USER", "${USER}", "$HOMEX", "$H", "${HOME:-x}", "$1", "$$", "$?", "$", "$ ", "${}", "$HOME/x", "$USER.txt", "$\\\nHOME", "$\"a\""))
	case n < 87:
		b.WriteString(pick(m, "~", "~/", "~/x", "~root", "~+", "a~", "~~", "~\\/", "~'x'", "x=~", "x=~/y", "a:~", "~:a"))
	case n < 94:
		b.WriteString(pick(m, "*", "?", "*.txt", "[a-c]", "[!a]*", "[^a]*", "[]]", "[", "[[:alpha:]]*", "**", "*/", "*/*", ".*", "\\**", "'*'*", "?.txt", "[a", "[a-]*", "*\\ *", "[\\]]", "[a\"-\"c]*", "sub/*", "./*", "-*", "*-", "[é]*", "[文]*", "a\\*", "\"*\"?"))
	case n < 97:
		b.WriteString(pick(m, "{}", "{a}", "{,", "{a,b}", "{1..3}", "a{b", "}c{", "{ }", "\\{a,b}", "{a\\,b}", "'{'a,b}", "{a,", ",b}", "{a..}", "${", "{}{}"))
	case n < 98:
		b.WriteString(pick(m, "#", "#x", "\"\"#", "\\#", "a\\\n#b", "#\\\n", " # x\n", "''"))
	default:
		b.WriteString(pick(m, "|", "&", ";", "<", ">", "(", ")", "`", "$(", "\n", "\\\n", "<<", ">>", "2>", "&>", "<(", "\r", "!x", "@(a|b)", "+(a)", "!(b)", "$((1))", "$[1]", "\x00", "\x01", "\xff"))
	}
}

// content is text that only a quote makes harmless.
func (m *lineMaker) content(without string) string {
	var b strings.Builder
	for range m.IntN(6) {
		b.WriteString(pick(m, "a", "b", " ", "\t", "\n", "|", "||", "&&", ";", "&", ">", "<", "(", ")", "{", "}", "$x", "$HOME", "$(id)", "`id`", `"`, "'", `\`, "\\\n", `\\`, "#", " #", "*", "?", "[a]", "!", "~", "=", ",", "{a,b}", "é", "文", "\u2028", `\'`, `\"`, `\$`, "\\`", "${x}", "$'", "$\"", "%d"))
	}
	return strings.ReplaceAll(b.String(), without, "")
}

// doubled is what may stand between double quotes, with the quote escaped and mostly the
// dollar too.
func (m *lineMaker) doubled() string {
	text := m.content("`")
	if m.IntN(8) > 0 {
		text = strings.NewReplacer(`"`, `\"`, "$", pick(m, `\$`, "")).Replace(text)
	}
	return text + pick(m, "", "", "", "", "$HOME", "${PWD}", `\\`, `\a`, "\\\n", "$", "$ ", "!", "a\\\nb", "$\\\n(id)")
}
