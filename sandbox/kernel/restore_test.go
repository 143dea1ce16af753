package kernel

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"
)

// A restore that does not come to its end tells which name is to blame.
func TestRestoreThatFails(t *testing.T) {
	for name, c := range map[string]struct {
		then func(p *peer, id any)
		want NameError
		none bool // nobody is to blame
	}{
		"dies":      {func(p *peer, _ any) { p.say(kindSupervisor, `{"event":"died","exit":7}`); p.worker() }, NameError{Index: 2, Name: "last"}, false},
		"is killed": {func(p *peer, _ any) { p.say(kindSupervisor, `{"event":"died","signal":9}`); p.worker() }, NameError{Index: 2, Name: "last", Killed: true}, false},
		"breaks":    {func(p *peer, _ any) { p.out.Close() }, NameError{Index: 2, Name: "last"}, false},
		"takes long": {func(p *peer, id any) {
			p.until("interrupt")
			p.reply(id, `"status":"interrupted","interrupted":true`)
			p.until("sweep")
		}, NameError{Index: 1, Name: "long", Late: true, Took: 20 * time.Second}, false},
		"is deaf":      {func(p *peer, _ any) { p.until("kill") }, NameError{Index: 1, Name: "long", Late: true, Took: 20 * time.Second}, false},
		"says why not": {func(p *peer, id any) { p.reply(id, `"status":"error","error":"no"`) }, NameError{}, true},
		"half a name":  {func(p *peer, _ any) { p.say(kindName, "abc") }, NameError{Index: 2, Name: "last"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				client := talk(t, Config{}, func(p *peer) {
					p.worker()
					id := p.until("restore")["id"]
					p.say(kindName, "\x00\x00\x00\x00first")
					p.say(kindName, "\x00\x00\x00\x01long")
					time.Sleep(20 * time.Second)
					p.say(kindName, "\x00\x00\x00\x02last")
					time.Sleep(time.Second)
					c.then(p, id)
				})
				_, err := client.Restore(t.Context(), RestoreRequest{Table: []byte(`{}`), From: strings.NewReader(""), Limit: 30 * time.Second})
				var got *NameError
				if errors.As(err, &got) == c.none || err == nil {
					t.Fatalf("%v", err)
				}
				if !c.none && (got.Index != c.want.Index || got.Name != c.want.Name || got.Late != c.want.Late || got.Killed != c.want.Killed || c.want.Took != 0 && got.Took != c.want.Took) {
					t.Errorf("%+v, want %+v", got, c.want)
				}
			})
		})
	}
}

// Names come in whatever way a worker likes.
func FuzzNames(f *testing.F) {
	f.Add([]byte("\x00\x00\x00\x01x"))
	f.Add([]byte("\xff\xff\xff\xff"))
	f.Fuzz(func(t *testing.T, in []byte) {
		var l names
		err := l.begin(in)
		if (l.now == nil) == (err == nil) || l.now != nil && (l.now.index < 0 || !utf8.ValidString(l.now.name)) {
			t.Fatalf("%+v, %v", l.now, err)
		}
	})
}
