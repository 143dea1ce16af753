package allowlist

import "strings"

// What xxd's options take. It compares beginnings (-postfix is -p), and older
// ones others than newer ones do, so that only spellings are allowed which all
// of them read in the same way, or refuse.
const (
	xxdFlags = "abCdeEipru" // may be joined: xxd reads the first letter, busybox all
	xxdAlone = " -h -help -v -version -autoskip -bits -capitalize -EBCDIC -include -ps -plain -postscript -revert -uppercase "
	xxdValue = " -c -cols -g -groupsize -l -len -n -name -o -offset -s -seek -skip "
)

// checkXxd allows one operand at most, because the second would be written.
func checkXxd(_ *List, c *command, args []Arg) *Error {
	i := 0
	for ; i < len(args); i++ {
		word := args[i].Text
		if !strings.HasPrefix(word, "-") || word == "-" {
			break
		}
		if word == "--" {
			i++
			break
		}
		if strings.HasPrefix(word, "--") {
			word = word[1:]
		}
		switch {
		case among(xxdAlone, word), strings.Trim(word[1:], xxdFlags) == "":
		case among(xxdValue, word):
			i++
		case word == "-R" && i+1 < len(args) && among("always never auto", args[i+1].Text):
			i++
		case strings.IndexByte("cglos", word[1]) >= 0 && isNumber(word[2:]):
		default:
			return c.refuse(i, args[i].Text, "it is not among the options that are allowed, which stand before the file: -a -b -C -d -e -E -i -p -r -u, with a value -c -g -l -n -o -s -R")
		}
	}
	if i+1 < len(args) {
		return c.refuse(i+1, args[i+1].Text, "what follows the file would be a second one, which is written; give one file, and options before it: the result is the output")
	}
	return nil
}

// isNumber says whether s is a number as xxd reads one: decimal, octal or
// hexadecimal, with + and - before it.
func isNumber(s string) bool {
	s = strings.TrimLeft(s, "+-")
	return s != "" && '0' <= s[0] && s[0] <= '9' && strings.Trim(s, "0123456789abcdefABCDEFxX") == ""
}
