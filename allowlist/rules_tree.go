package allowlist

import "strings"

// checkTree reads options as tree does: a letter's value is always the next
// word, but digits after L. Versions differ there, so that no word with a dash
// at its beginning passes for a value or, behind --, for a directory: each is
// checked as options.
func checkTree(_ *List, c *command, args []Arg) *Error {
	for i := 0; i < len(args); i++ {
		word := args[i].Text
		if !strings.HasPrefix(word, "-") || word == "--" {
			continue
		}
		if args[i].Pattern != "" {
			return c.refuse(i, word, wildOption)
		}
		values, err := treeValues(c, i, word)
		if err != nil {
			return err
		}
		for range values {
			if i++; i == len(args) {
				break
			}
			switch a := args[i]; {
			case a.Pattern != "":
				return c.refuse(i, a.Text, "the wildcard would be replaced by names before tree sees it: quote it, as in -P '*.go'")
			case strings.HasPrefix(a.Text, "-"):
				return c.refuse(i, a.Text, "a value that begins with - is not allowed: put "+word+" before its value")
			}
		}
	}
	return nil
}

// treeValues says how many of the words after a word with options are values.
func treeValues(c *command, at int, word string) (int, *Error) {
	if name, ok := strings.CutPrefix(word, "--"); ok {
		name, _, hasValue := strings.Cut(name, "=")
		switch takes := c.options.word(name); {
		case takes == unlisted, takes == alone && hasValue:
			return 0, c.options.refuse(c, at, word, "--"+name)
		case takes == valued && !hasValue:
			return 1, nil
		}
		return 0, nil
	}
	values := 0
	for j := 1; j < len(word); j++ {
		switch c.options.letter(word[j]) {
		case unlisted:
			return 0, c.options.refuse(c, at, word, "-"+word[j:j+1])
		case valued:
			digits := len(word) - j - 1 - len(strings.TrimLeft(word[j+1:], "0123456789"))
			if word[j] != 'L' || digits == 0 {
				values++
			}
			if word[j] == 'L' {
				j += digits
			}
		}
	}
	return values, nil
}
