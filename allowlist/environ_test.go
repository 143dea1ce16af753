package allowlist

import "testing"

func TestEnvironment(t *testing.T) {
	for command, want := range map[string]string{
		"LC_ALL=C sort f":                "LC_ALL=C",
		"LC_ALL= sort f":                 "LC_ALL=",
		"LC_TIME=de_DE.UTF-8@euro date":  "LC_TIME=de_DE.UTF-8@euro",
		"LANG='C.UTF-8' ls":              "LANG=C.UTF-8",
		"TZ=America/New_York date":       "TZ=America/New_York",
		"TZ='<+0330>-3:30' date":         "TZ=<+0330>-3:30",
		"TZ=EST5EDT,M3.2.0,M11.1.0 date": "TZ=EST5EDT,M3.2.0,M11.1.0",
		"LC_ALL=$USER ls":                "LC_ALL=" + User,
		"TZ=/etc/passwd date":            "",
		"TZ=:/etc/passwd date":           "",
		"TZ=../../etc/passwd date":       "",
		"TZ=~/zone date":                 "",
		"TZ=$HOME/zone date":             "",
		"LC_ALL=* ls":                    "",
		"LC_ALL='a b' ls":                "",
		"LC_ALL=é ls":                    "",
		"LC_=C ls":                       "",
		"LC_all=C ls":                    "",
		"LANGUAGE=de ls":                 "",
		"LC_ALL[0]=C ls":                 "",
		"LC_ALL+=C ls":                   "",
		`"LC_ALL"=C ls`:                  "",
		"LC_ALL=C":                       "",
		"LC_ALL=C LD_PRELOAD=./x.so ls":  "",
		"ls | LD_PRELOAD=./x.so wc":      "",
		"LC_ALL=C\nls":                   "",
	} {
		p, err := Parse(command)
		switch {
		case err != nil && want != "":
			t.Errorf("%s: %v", command, err)
		case err != nil:
			checkRefusal(t, command, err)
		case want == "":
			t.Errorf("%s: accepted: %v", command, p)
		default:
			if got := p.Steps[0].Stages[0].Env; len(got) != 1 || got[0] != want {
				t.Errorf("%s: %q, want %q", command, got, want)
			}
		}
	}
}

// What may be put before a command may be put into a Stage, and nothing else.
func TestCheckEnv(t *testing.T) {
	for _, v := range []string{"LC_ALL=C", "LANG=de_DE.UTF-8@euro", "TZ=Europe/Berlin", "LC_ALL="} {
		if err := CheckEnv(v); err != nil {
			t.Errorf("%q: %v", v, err)
		}
	}
	for _, v := range []string{"", "=", "LC_ALL", "LC_=C", "LC_all=C", "PATH=.", "LD_PRELOAD=x.so", "TZ=/workspace/x", "TZ=:x", "LANG=a b", "LC_ALL=../x", "LC_ALL=C\nX=y", " LC_ALL=C"} {
		err, ok := CheckEnv(v).(*Error)
		if !ok || err.Rule != "environment" || err.Offset != -1 {
			t.Errorf("%q: %v", v, err)
		}
	}
}

func TestDistance(t *testing.T) {
	for _, c := range []struct {
		a, b string
		want int
	}{{"", "", 0}, {"ls", "", 2}, {"", "ls", 2}, {"grep", "gerp", 1}, {"sort", "srot", 1}, {"uniq", "unique", 2}, {"cat", "cut", 1}, {"md5", "md5sum", 3}} {
		if got := distance(c.a, c.b); got != c.want {
			t.Errorf("%q, %q: %d, want %d", c.a, c.b, got, c.want)
		}
	}
}
