package srt

import (
	"fmt"
	"testing"
	"time"

	"mcp-sandbox/sandbox"
)

// onSave is code that makes a variable which runs other code when it is saved.
func onSave(name, code string) string {
	return fmt.Sprintf("class Saves:\n    def __reduce__(self): exec(%q); return int, ()\nSaves.__module__ = 'builtins'\n%s = Saves(); del Saves\n", code, name)
}

// A value that ends the interpreter when it is saved costs itself and no other.
func TestSaveEndsTheInterpreter(t *testing.T) {
	s := opener(local(t, Config{}))(t).(*session)
	hibernated(t, s, "x = 1\n"+onSave("exits", "import os; os._exit(3)")+"y = [x, 'shared']\n"+
		onSave("killed", "import os; os.kill(os.getpid(), 9)")+"z = [y]")
	res := runWithin(t, s, time.Minute, "[x, y, z[0] is y, [n for n in ('exits', 'killed') if n in globals()]]")
	if res.State != sandbox.StateRestored || string(res.Output) != `[1,[1,"shared"],true,[]]` || !noted(res, "not kept: exits, killed (saving it ended the interpreter)") {
		t.Errorf("%+v", res)
	}
	hibernate(t, s) // what is left can be saved
	if res := runWithin(t, s, time.Minute, "y"); res.State != sandbox.StateRestored || noted(res, "exits") {
		t.Errorf("%+v", res)
	}
}

// A value that takes too long to save costs itself and no other.
func TestSaveTakesTooLong(t *testing.T) {
	if testing.Short() {
		t.Skip("takes as long as saving may")
	}
	t.Parallel()
	s := opener(local(t, Config{}))(t).(*session)
	hibernated(t, s, "x = 1\n"+onSave("slow", "import time; time.sleep(1000)")+"y = [x]")
	res := runWithin(t, s, time.Minute, "[x, y, 'slow' in globals()]")
	if res.State != sandbox.StateRestored || string(res.Output) != `[1,[1],false]` || !noted(res, "not kept: slow (saving it took more than half of a time limit of 20s)") {
		t.Errorf("%+v", res)
	}
}

// Where no checkpoint can take over, what is lost is told with the name to blame.
func TestSaveWithoutCheckpoint(t *testing.T) {
	s := opener(local(t, Config{Checkpoint: sandbox.CheckpointOff}))(t).(*session)
	do(t, s, "x = 1\n"+onSave("exits", "import os; os._exit(3)"), sandbox.StatusOK, sandbox.StateNew)
	if err := s.Hibernate(t.Context()); err == nil {
		t.Fatal("it was saved")
	}
	if res := runWithin(t, s, time.Minute, "'x' in globals()"); res.State != sandbox.StateLost || !noted(res, "while exits was being saved") {
		t.Errorf("%+v", res)
	}
}
