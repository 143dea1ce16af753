package egress

import (
	"net/netip"
	"slices"
	"strings"
	"testing"
)

func rules(t testing.TB, allow []string, deny ...string) Rules {
	t.Helper()
	r, err := ParseRules(allow, deny)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestParseRules(t *testing.T) {
	for _, tt := range []struct{ text, want string }{ // want: canonical, or "!" and a part of the fault
		{"example.org", "example.org"},
		{"Example.ORG.", "example.org"},
		{"example.org:8443", "example.org:8443"},
		{"*.example.org", "*.example.org"},
		{"*.Example.org.:443", "*.example.org:443"},
		{"bücher.example", "xn--bcher-kva.example"},
		{"BÜCHER。example", "xn--bcher-kva.example"},
		{"xn--bcher-kva.example", "xn--bcher-kva.example"},
		{"localhost", "localhost"},
		{"db", "db"},
		{"10.1.2.3", "10.1.2.3"},
		{"10.1.2.3:80", "10.1.2.3:80"},
		{"::1", "::1"},
		{"[::1]", "::1"},
		{"[::1]:80", "[::1]:80"},
		{"2001:DB8:0::1", "2001:db8::1"},
		{"::ffff:10.1.2.3", "10.1.2.3"},
		{"[::ffff:10.1.2.3]:80", "10.1.2.3:80"},

		{"", "!253 bytes"},
		{"*", "!star"},
		{"*.org", "!top-level"},
		{"*.", "!"},
		{"a.*.org", "!star"},
		{"*example.org", "!star"},
		{"**.example.org", "!star"},
		{"*.10.1.2.3", "!ends in a number"},
		{"http://example.org", "!not a URL"},
		{"example.org/", "!not a URL"},
		{"me@example.org", "!not a URL"},
		{"example.org:", "!no port"},
		{"example.org:0", "!no port"},
		{"example.org:080", "!no port"},
		{"example.org:+80", "!no port"},
		{"example.org:65536", "!no port"},
		{"example.org:80:80", "!no host name"},
		{"example..org", "!no host name"},
		{".example.org", "!no host name"},
		{"-a.example.org", "!no host name"},
		{"exa mple.org", "!no host name"},
		{"exa\x00mple.org", "!no host name"},
		{"a_b.example.org", "!no host name"},
		{strings.Repeat("a", 64) + ".org", "!"},
		{strings.Repeat("a.", 127) + "org", "!"},
		{"127.1", "!ends in a number"},
		{"2130706433", "!ends in a number"},
		{"0x7f.0.0.0x1", "!ends in a number"},
		{"010.1.2.3", "!ends in a number"},
		{"fe80::1%eth0", "!zone"},
		{"[::1", "!"},
		{"0.0.0.0", "!no host's"},
		{"::", "!no host's"},
	} {
		r, err := ParseRules([]string{tt.text}, nil)
		if part, fault := strings.CutPrefix(tt.want, "!"); fault {
			if err == nil || !strings.Contains(err.Error(), part) {
				t.Errorf("%q: %v, %v; want a fault with %q", tt.text, r, err, part)
			}
			continue
		}
		if err != nil || r.String() != tt.want {
			t.Errorf("%q: %v, %v; want %s", tt.text, r, err, tt.want)
		}
	}
	_, err := ParseRules([]string{"*", "ok.example.org"}, []string{"a b"})
	if err == nil || !strings.Contains(err.Error(), `"*"`) || !strings.Contains(err.Error(), `"a b"`) {
		t.Errorf("not all faults together: %v", err)
	}
}

func TestRulesJudge(t *testing.T) {
	r := rules(t, []string{"example.org", "*.example.net:8443", "10.0.0.5:80", "raw.example.org:22", "[fd00::1]", "*.wide.example.com"},
		"bad.wide.example.com", "*.worse.wide.example.com", "closed.wide.example.com:25")
	for _, tt := range []struct {
		authority string
		allowed   bool
		raw       bool
	}{
		{"example.org:443", true, false},
		{"EXAMPLE.org.:443", true, false},
		{"example.org:25", true, false},
		{"www.example.org:443", false, false},
		{"notexample.org:443", false, false},
		{"example.org.evil.com:443", false, false},
		{"a.example.net:8443", true, true},
		{"a.b.example.net:8443", true, true},
		{"a.example.net:443", false, false},
		{"example.net:8443", false, false},
		{"xexample.net:8443", false, false},
		{"10.0.0.5:80", true, false},
		{"[::ffff:10.0.0.5]:80", true, false},
		{"10.0.0.5:81", false, false},
		{"10.0.0.6:80", false, false},
		{"[fd00::1]:9", true, false},
		{"[fd00:0:0::1]:9", true, false},
		{"[fd00::2]:9", false, false},
		{"raw.example.org:22", true, true},
		{"x.wide.example.com:443", true, false},
		{"bad.wide.example.com:443", false, false},
		{"BAD.wide.example.com.:443", false, false},
		{"x.bad.wide.example.com:443", true, false},
		{"x.worse.wide.example.com:443", false, false},
		{"worse.wide.example.com:443", true, false},
		{"closed.wide.example.com:25", false, false},
		{"closed.wide.example.com:443", true, false},
	} {
		to, err := parseAuthority(tt.authority, 0)
		if err != nil {
			t.Fatal(err)
		}
		g, err := r.judge(to)
		if (err == nil) != tt.allowed || g.raw != tt.raw {
			t.Errorf("%s: %+v, %v", tt.authority, g, err)
		}
	}
	if to, _ := parseAuthority("example.org:80", 0); (Rules{}).Empty() == false || func() bool { _, err := (Rules{}).judge(to); return err == nil }() {
		t.Error("the zero value allows something")
	}
}

func TestRulesRender(t *testing.T) {
	r := rules(t, []string{"example.org", "example.org.", "*.example.net", "::1", "127.0.0.1:80", "localhost"}, "bad.example.net:1")
	if got, want := r.String(), "example.org, *.example.net, ::1, 127.0.0.1:80, localhost, but not bad.example.net:1"; got != want {
		t.Errorf("%s; want %s", got, want)
	}
	if got := (Rules{}).String(); got != "none" {
		t.Errorf("no rules: %s", got)
	}
	if got := r.Local(); !slices.Equal(got, []string{"::1", "127.0.0.1", "localhost"}) {
		t.Errorf("local: %q", got)
	}
}

func TestPublic(t *testing.T) {
	for _, tt := range []struct {
		public bool
		addrs  string
	}{
		{true, "1.1.1.1 93.184.216.34 100.63.255.255 100.128.0.0 172.15.0.1 172.32.0.1 192.0.1.1 198.17.255.255 223.255.255.255 " +
			"2606:4700::1111 2001:4860:4860::8888 2a00::1 64:ff9b::808:808 ::ffff:8.8.8.8"},
		{false, "0.0.0.0 0.1.2.3 10.0.0.1 10.255.255.255 100.64.0.1 100.100.100.200 100.127.255.255 127.0.0.1 127.1.2.3 " +
			"169.254.169.254 169.254.0.1 172.16.0.1 172.31.255.255 192.0.0.1 192.0.0.192 192.0.2.1 192.88.99.1 192.168.0.1 198.18.0.1 198.19.255.255 " +
			"198.51.100.1 203.0.113.1 224.0.0.1 239.255.255.255 240.0.0.1 255.255.255.255 168.63.129.16 " +
			":: ::1 ::7f00:1 ::10.0.0.1 ::ffff:10.0.0.1 ::ffff:127.0.0.1 ::ffff:169.254.169.254 ::ffff:0:127.0.0.1 " +
			"64:ff9b::10.0.0.1 64:ff9b::169.254.169.254 64:ff9b::127.0.0.1 64:ff9b:1::808:808 " +
			"2002:7f00:1:: 2002:a00:1::1 2002:808:808::1 2001::1 2001:0:7f00:1:: 2001:db8::1 2001:2::1 2001:10::1 3fff::1 " +
			"fc00::1 fd00:ec2::254 fe80::1 fec0::1 ff02::1 100::1 5f00::1 2606:4700::5efe:10.0.0.1 2606:4700::200:5efe:a00:1"},
	} {
		for _, text := range strings.Fields(tt.addrs) {
			if got := public(netip.MustParseAddr(text)); got != tt.public {
				t.Errorf("%s: public %v", text, got)
			}
		}
	}
	if public(netip.Addr{}) || public(netip.MustParseAddr("fe80::1%lo")) {
		t.Error("no address, or one with a zone, is public")
	}
}

func TestJudgeAddress(t *testing.T) {
	r := rules(t, []string{"example.org", "10.0.0.5:80", "localhost", "8.8.8.8"}, "9.9.9.9", "1.1.1.1:443")
	own := []netip.Addr{netip.MustParseAddr("5.5.5.5")}
	for _, tt := range []struct {
		authority, addr string
		allowed         bool
	}{
		{"example.org:443", "93.184.216.34", true},
		{"example.org:443", "10.0.0.5", false},
		{"example.org:80", "10.0.0.5", true}, // named itself
		{"example.org:80", "10.0.0.6", false},
		{"example.org:80", "127.0.0.1", false}, // localhost is another name
		{"localhost:80", "127.0.0.1", true},
		{"localhost:80", "::1", true},
		{"localhost:80", "10.0.0.6", false},
		{"example.org:443", "5.5.5.5", false}, // this machine
		{"example.org:443", "64:ff9b::5.5.5.5", false},
		{"example.org:443", "9.9.9.9", false},
		{"example.org:443", "64:ff9b::9.9.9.9", false},
		{"example.org:443", "1.1.1.1", false},
		{"example.org:80", "1.1.1.1", true},
		{"example.org:80", "64:ff9b::10.0.0.5", false}, // named, but not so
	} {
		to, err := parseAuthority(tt.authority, 0)
		if err != nil {
			t.Fatal(err)
		}
		g, err := r.judge(to)
		if err != nil {
			t.Fatal(err)
		}
		if err := r.judgeAddress(to, g, netip.MustParseAddr(tt.addr), own); (err == nil) != tt.allowed {
			t.Errorf("%s at %s: %v", tt.authority, tt.addr, err)
		} else if err != nil && strings.Contains(err.Error(), tt.addr) {
			t.Errorf("the guest is told an address: %v", err)
		}
	}
}
