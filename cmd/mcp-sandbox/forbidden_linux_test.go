package main_test

import (
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// Where user namespaces are forbidden nothing is served and nothing is run, and
// the reason comes with a remedy.
func TestForbiddenUserNamespaces(t *testing.T) {
	server, tmp := binary(t), t.TempDir()
	for name, errno := range map[string]syscall.Errno{"by a filter": unix.EPERM, "by their number": unix.ENOSPC} {
		for _, args := range [][]string{{"serve"}, {"exec", "print('ran')"}, {"doctor"}} {
			t.Run(name+", "+args[0], func(t *testing.T) {
				var stdout, stderr strings.Builder
				cmd := exec.Command(server, args...)
				cmd.Env = append(os.Environ(), "TMPDIR="+tmp)
				cmd.Stdout, cmd.Stderr = &stdout, &stderr
				err := denied(t, []denial{{nr: unix.SYS_CLONE, errno: errno, arg: argument0, is: unix.CLONE_NEWUSER}}, cmd.Start)
				if err != nil {
					t.Fatal(err)
				}
				if err := cmd.Wait(); err == nil {
					t.Error("exit code 0")
				}
				said := stderr.String()
				if args[0] == "doctor" {
					said = stdout.String()
				} else if stdout.Len() > 0 {
					t.Errorf("on stdout, which is the protocol's: %s", stdout.String())
				}
				if !strings.Contains(said, "userns") || !strings.Contains(said, "user.max_user_namespaces") {
					t.Errorf("neither the layer nor the remedy is named:\n%s", said)
				}
			})
		}
	}
	left, err := os.ReadDir(tmp)
	if err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}
