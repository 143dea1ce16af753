package workload

import (
	"encoding/json"
	"fmt"
	"hash/crc32"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"mcp-sandbox/sandbox"
)

// What the API says is a stranger's: whatever it is, there is a record, a page or
// an error, and no panic.
func FuzzAnswers(f *testing.F) {
	for _, s := range []string{
		`{"id":"a","workloadId":"b","status":"ERRORED","exitCode":null,"statusDetails":{"logTail":["x",{"message":"y"},5]}}`,
		`{"data":[{"timestamp":"2026-06-11 14:04:14.084208+00:00","level":"INFO","message":"m","stacktrace":null}],"next":null}`,
		`{"overallStatus":{"state":"errored"},"replicas":[{"conditions":[{"type":"Ready","met":false,"reason":"x"}],"containers":[{"lastState":{"exitCode":1}}]}]}`,
		`{"data":"x"}`, `{"replicas":{}}`, `[]`, `null`, `{"detail":[{"loc":[1,null],"msg":5}]}`, `<html><title>x`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		var r workloadRecord
		if json.Unmarshal(b, &r) == nil && r.Status != strings.ToLower(r.Status) {
			t.Errorf("status %q", r.Status)
		}
		var p logPage
		if json.Unmarshal(b, &p) == nil && len(p.rows) > p.count {
			t.Errorf("%d rows of %d", len(p.rows), p.count)
		}
		var l listing
		_ = json.Unmarshal(b, &l)
		var w wireSnapshot
		if json.Unmarshal(b, &w) == nil {
			s := w.snapshot()
			_ = s.obstacle()
			_ = s.sandbox()
		}
		code, detail := errorBody(b)
		if !utf8.ValidString(detail) || strings.ContainsAny(code+detail, "\x00\x1b\r") || len(detail) > 2*maxDetail {
			t.Errorf("%q, %q", code, detail)
		}
	})
}

// What the code writes into its log is a stranger's too.
func FuzzLog(f *testing.F) {
	f.Add("a\n"+marker("1")+"\nb", byte(1))
	f.Add(marker(`{"a": NaN, "b": [Infinity, 12345678901234567890]}`), byte(0))
	f.Add(marker(`{"drx":"`+ourNonce+`","parts":1,"sum":0}`)+"\n__DRX__"+ourNonce+":0/1:eJw=", byte(1))
	f.Add(runnerLine+"\n"+marker("1")+"\n"+runnerLine+"\n"+marker("2"), byte(2))
	f.Add("Traceback (most recent call last):\n  File\nE: x\nx"+marker("null"), byte(1))
	f.Fuzz(func(t *testing.T, text string, how byte) {
		var rows []row
		for i, l := range strings.Split(text, "\n") {
			r := row{Level: "INFO", Message: l}
			if how&1 != 0 {
				r.Time = time.Unix(int64(i), 0)
			}
			if how&2 != 0 && i%3 == 0 {
				r.Level = "ERROR"
			}
			rows = append([]row{r}, rows...)
		}
		start := time.Unix(1000, 0)
		v := &vigil{nonce: ourNonce, timeout: time.Second, codeTime: time.Second + grace, provisioning: time.Minute, memory: 1, keep: 1000, began: start}
		v.sawLog(start, rows, nil)
		v.sawRecord(start, record{Status: "errored", LogTail: text}, nil)
		res, err, over := v.end(start.Add(time.Hour))
		if !over {
			t.Fatal("an hour later it is still waited for")
		}
		if (err == nil) != (res.Status != "") {
			t.Errorf("%+v, %v", res, err)
		}
		for _, value := range []json.RawMessage{res.ReturnValue, res.Output} {
			if value != nil && !json.Valid(value) {
				t.Errorf("%q is no JSON", value)
			}
		}
		if !utf8.ValidString(res.Stdout) || res.Truncated.Stdout.Kept > res.Truncated.Stdout.Produced {
			t.Errorf("%+v", res)
		}
	})
}

// A parcel that is put together from whatever lines is well-formed or refused.
func FuzzParcel(f *testing.F) {
	seed := func(s string) {
		packed, err := compress([]byte(s))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(packed)
	}
	seed(`{"exit":-1,"reply":{"status":"ok","exit_code":0,"duration_s":1e300,"output":[1],"return_value":null,"notes":["a"]},"out_head":"YQ==","out_bytes":-5}`)
	seed(`{"timeout":true,"killed":true,"signal":9,"exit":-1,"reply":null,"wall_s":-1}`)
	seed(`{"signal":9,"oom_killed":true}`)
	seed(strings.Repeat("[", 100000))
	f.Fuzz(func(t *testing.T, packed []byte) {
		text := encode64(packed)
		rows := []row{{Message: fmt.Sprintf("__DRX__%s:0/1:%s", ourNonce, text)}}
		p, err := openParcel(label{ourNonce, 1, crc32.ChecksumIEEE([]byte(text))}, rows)
		if err != nil {
			return
		}
		r := p.result(time.Second, 1<<20)
		if r.Status == "" || r.Duration < 0 || r.Truncated.Stdout.Kept > r.Truncated.Stdout.Produced {
			t.Errorf("%+v", r)
		}
		if r.Status == sandbox.StatusError && (r.ExitCode < 1 || r.ExitCode > 255 || r.Error == "") {
			t.Errorf("%+v", r)
		}
	})
}

// Whatever Python writes as JSON is JSON afterwards, or no value.
func FuzzPythonValue(f *testing.F) {
	for _, s := range []string{`NaN`, `[-Infinity, 9007199254740993, -9007199254740993, 1e5, "NaN \" 1"]`, `{"1": 4}`, `"\ud800"`, `"unfinished`, `12-3`, `{"a":NaN}x`} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if v, ok := pythonValue(s); ok && v != nil && !json.Valid(v) {
			t.Errorf("%q of %q", v, s)
		}
	})
}
