package main_test

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"
)

// The verb prints one line, serves until it is told to end, and leaves no process.
func TestWorkloadEmulator(t *testing.T) {
	for _, flag := range []string{"--speed=50", "--dangerously-no-wall"} {
		t.Run(flag, func(t *testing.T) {
			cmd := exec.Command(binary(t), "workload-emulator", flag)
			var stderr strings.Builder
			cmd.Stderr = &stderr
			out, err := cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			defer cmd.Process.Kill()
			read := bufio.NewReader(out)
			line, err := read.ReadString('\n')
			said := regexp.MustCompile(`^export DATAROBOT_ENDPOINT=(http://127\.0\.0\.1:\d+/api/v2) DATAROBOT_API_TOKEN=(\S{20,})\n$`).FindStringSubmatch(line)
			if err != nil || said == nil {
				t.Fatalf("%q: %v", line, err)
			}
			mark := fmt.Sprintf("emulated-%d-%s", os.Getpid(), strings.Trim(flag, "-=0123456789"))
			created := postTo(t, said[1]+"/workloads/", said[2], `{"name":"w","artifact":{"name":"a","spec":{"containerGroups":[{"containers":[
				{"name":"c","imageUri":"i","primary":true,"port":8080,"entrypoint":["/opt/venv/bin/python","-c","import time; time.sleep(600)","`+mark+`"]}]}]}},
				"runtime":{"containerGroups":[{"replicaCount":1,"containers":[{"name":"c","resourceAllocation":{"cpu":1,"memory":268435456}}]}]}}`)
			if created != http.StatusCreated {
				t.Errorf("create: %d", created)
			}
			if refused := postTo(t, said[1]+"/workloads/", "another", "{}"); refused != http.StatusUnauthorized {
				t.Errorf("another token: %d", refused)
			}
			for end := time.Now().Add(20 * time.Second); len(named(t, mark)) == 0; time.Sleep(10 * time.Millisecond) {
				if time.Now().After(end) {
					t.Fatalf("its container never ran:\n%s", stderr.String())
				}
			}
			if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
				t.Fatal(err)
			}
			rest, _ := io.ReadAll(read)
			if err := cmd.Wait(); err != nil || len(rest) > 0 {
				t.Errorf("%v, stdout %q, stderr:\n%s", err, rest, stderr.String())
			}
			if left := named(t, mark); len(left) > 0 {
				t.Errorf("processes %q are left", left)
			}
			if warned := strings.Contains(stderr.String(), "without a wall"); warned != (flag == "--dangerously-no-wall") {
				t.Errorf("stderr:\n%s", stderr.String())
			}
		})
	}
}

func postTo(t *testing.T, url, token, body string) int {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+token)
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	answer.Body.Close()
	return answer.StatusCode
}

// named lists the processes with an argument.
func named(t *testing.T, argument string) []string {
	t.Helper()
	all, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for _, name := range all {
		line, err := os.ReadFile(name) // it may have ended
		if err == nil && strings.Contains(string(line), "\x00"+argument+"\x00") {
			found = append(found, name)
		}
	}
	return found
}
