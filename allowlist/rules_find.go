package allowlist

import "strings"

// What find's words take. Predicates have no abbreviations, and nothing may be
// attached to one but what is said here. A test that takes a value hides the
// word after it: -name -exec looks for a file of that name.
const (
	findAlone = " -H -L -P -- " + // before the paths: how links are followed
		"-a -and -o -or -not -true -false " + // operators
		"-print -print0 -ls -prune -quit " + // actions that print, or print nothing
		"-d -depth -daystart -follow -mount -noleaf -xdev -warn -nowarn -ignore_readdir_race -noignore_readdir_race " + // how it walks
		"-empty -executable -readable -writable -nouser -nogroup " + // tests
		"-help --help -version --version "
	findValued = " -D " + // debugging output
		"-printf " + // an action that prints by a format
		"-files0-from -maxdepth -mindepth -regextype " + // how it walks
		"-amin -anewer -atime -cmin -cnewer -context -ctime -fstype -gid -group -ilname -iname -inum -ipath -iregex -iwholename " +
		"-links -lname -mmin -mtime -name -newer -path -perm -regex -samefile -size -type -uid -used -user -wholename -xtype " // tests
)

// findRefused are the actions that do more than print.
func findRefused() []refusal {
	return []refusal{
		{"-exec -execdir -ok -okdir", "it runs programs; to search in files use `grep -rl --include='*.go' TEXT .`, to see them -ls or -printf"},
		{"-delete", "it deletes files; -print lists them"},
		{"-fprint -fprint0 -fprintf -fls", "it writes a file; -print, -print0, -printf and -ls write to the output"},
	}
}

// checkFind walks the words as find does.
func checkFind(_ *List, c *command, args []Arg) *Error {
	expression := false // begins at the first word with a dash, and paths end there
	for i := 0; i < len(args); i++ {
		word := args[i].Text
		switch {
		case args[i].Pattern != "" && (expression || strings.HasPrefix(word, "-")):
			return c.refuse(i, word, "the wildcard would be replaced by names before find sees it: quote it, as in -name '*.go'")
		case word == "-" || !strings.HasPrefix(word, "-"):
			// A path, or an operator: ( ) ! and the comma.
		case among(findAlone, word), isLevel(word):
			expression = expression || !among("-H -L -P --", word) && !isLevel(word)
		case among(findValued, word), isNewer(word):
			expression = expression || word != "-D"
			if i++; i < len(args) && args[i].Pattern != "" {
				return c.refuse(i, word+" "+args[i].Text, "the wildcard would be replaced by names before find sees it: quote it, as in -name '*.go'")
			}
		default:
			return refuseFind(c, i, word)
		}
	}
	return nil
}

// isLevel says whether word is -O and digits.
func isLevel(word string) bool {
	level, ok := strings.CutPrefix(word, "-O")
	return ok && strings.Trim(level, "0123456789") == ""
}

// isNewer says whether word is -newerXY: which of the file's times is compared
// with which of another's.
func isNewer(word string) bool {
	xy, ok := strings.CutPrefix(word, "-newer")
	return ok && len(xy) == 2 && strings.IndexByte("aBcm", xy[0]) >= 0 && strings.IndexByte("aBcmt", xy[1]) >= 0
}

func refuseFind(c *command, at int, word string) *Error {
	for _, r := range findRefused() {
		if among(r.names, word) {
			return c.refuse(at, word, r.why)
		}
	}
	return c.refuse(at, word, "find has no such test that is allowed; a test and its value are two words: -name '*.go', -type f, -mtime -7, -size +1M, -maxdepth 2")
}
