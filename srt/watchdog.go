package srt

import (
	"fmt"
	"log/slog"
	"sync"
	"time"

	"mcp-sandbox/sandbox"
	"mcp-sandbox/sandbox/kernel"
)

// watchdog holds the limits that the kernel doesn't hold for us: the total of a
// workspace on a disk without quotas, and, where there is no control group, the
// memory of all processes of a session together. It has a clock of its own, which no
// call sets back: a guest can go beyond such a limit for as long as one round of it.
type watchdog struct {
	watched
	kick chan struct{}
	quit chan struct{}
	done chan struct{}

	mu      sync.Mutex
	begun   time.Time     // of the call under way; zero if there is none
	turns   int           // how often a call has begun or ended
	ran     bool          // a call has begun in this interpreter
	first   bool          // nothing was measured since a call began or ended
	stopped bool          // the call under way was told to end
	seen    time.Time     // when the last measuring began
	unseen  time.Duration // how long calls that are over ran since then, all together
	why     string
	due     time.Time // of the next round
	lookBy  time.Time // when what a call has left behind must be looked at; zero: that was done

	glance *glance // nil = the watchdog's own rounds look at memory

	activity uint64    // of the last round that looked whether anything runs
	owed     bool      // something has run that was not measured
	flying   time.Time // since when every round has found descriptors in flight; zero: the last did not
	hidden   int       // rounds in a row that some process could not be looked into
}

// watched is what a watchdog is told.
type watched struct {
	cage   *cage
	client *kernel.Client
	policy Policy
	disk   *disk        // nil = the workspace is not watched
	others []*disk      // other places of which nobody else holds the limits
	log    *slog.Logger // nil = silent
}

const (
	watchBusy      = 100 * time.Millisecond // between two rounds while a call runs,
	watchAwake     = 250 * time.Millisecond // while something runs between the calls, or could: a child, a thread,
	watchIdle      = 2 * time.Second        // and while nothing can but by a signal
	watchForced    = 30 * time.Second       // at most, between two full rounds
	watchShare     = 20                     // a round is followed by a pause of that many times its own length
	watchAllowance = 32 * mib               // for the supervisor, as in a control group: the limit is for the user's code
	hiddenFor      = 3                      // rounds that a process may be out of sight, as one that is just ending is
)

// watch starts a watchdog. Its owner must call close.
func watch(what watched) *watchdog {
	if what.log == nil {
		what.log = slog.New(slog.DiscardHandler)
	}
	w := &watchdog{
		watched: what,
		kick:    make(chan struct{}, 1), quit: make(chan struct{}), done: make(chan struct{}),
	}
	if w.cage.limitsMemory() {
		w.glance = &glance{w: w}
	}
	go w.loop()
	return w
}

func (w *watchdog) close() {
	close(w.quit)
	<-w.done
	if w.glance != nil {
		w.glance.close()
	}
}

// running tells whether a call is under way.
func (w *watchdog) running(yes bool) {
	if w.glance != nil {
		w.glance.running(yes)
	}
	w.mu.Lock()
	now := time.Now()
	if yes {
		w.begun, w.ran = now, true
	} else {
		w.unseen += w.unseenOfCall(now)
		w.begun = time.Time{}
		if w.lookBy.IsZero() { // calls that follow don't put it off
			w.lookBy = now.Add(watchAwake)
		}
	}
	w.turns++
	w.first, w.stopped = true, false
	soon := !w.due.After(w.wanted())
	w.mu.Unlock()
	if soon {
		return // to be woken costs a call a tenth of its time
	}
	select {
	case w.kick <- struct{}{}:
	default:
	}
}

// wanted is when the next round is wanted at the latest, by what calls have done since the
// last and do; far away if they have done nothing. mu is held.
func (w *watchdog) wanted() time.Time {
	by := w.lookBy
	if !w.begun.IsZero() {
		if soon := w.begun.Add(max(0, watchBusy-w.unseen)); by.IsZero() || soon.Before(by) {
			by = soon
		}
	}
	if by.IsZero() {
		return time.Now().Add(watchForced)
	}
	return by
}

// unseenOfCall is how long the call under way has run since the last measuring began. mu is held.
func (w *watchdog) unseenOfCall(now time.Time) time.Duration {
	from := w.begun
	switch {
	case from.IsZero():
		return 0
	case w.seen.After(from):
		from = w.seen
	}
	return now.Sub(from)
}

// reason is why the watchdog has ended the interpreter outside a call, in one sentence; "" if it has not.
func (w *watchdog) reason() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.why
}

// moment takes down what the session is doing; what calls have left behind until now, the
// round that asks has to see to.
func (w *watchdog) moment() moment {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := time.Now()
	w.lookBy = time.Time{}
	m := moment{
		ran: w.ran, first: w.first, stopped: w.stopped,
		turns: w.turns, unseen: w.unseen + w.unseenOfCall(now), since: now.Sub(w.seen),
	}
	if !w.begun.IsZero() {
		m.running = max(now.Sub(w.begun), 1)
	}
	return m
}

// measuring says that all there is at present will be measured, for m.
func (w *watchdog) measuring(m moment) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.seen, w.unseen = time.Now(), 0
	if w.turns == m.turns {
		w.first = false
	}
}

// settle is when the next round is to be: when it is due, or wanted before that, though not
// before earliest.
func (w *watchdog) settle(due, earliest time.Time) time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	wanted := w.wanted()
	if wanted.Before(earliest) {
		wanted = earliest
	}
	if wanted.Before(due) {
		due = wanted
	}
	w.due = due
	return due
}

func (w *watchdog) loop() {
	defer close(w.done)
	watchesMemory := !w.cage.limitsMemory()
	if !watchesMemory && w.disk == nil && len(w.others) == 0 {
		<-w.quit
		return
	}
	tick := time.NewTimer(0)
	defer tick.Stop()
	due, pause := time.Now(), time.Duration(0) // pause: at least that long after the last round
	ended := time.Time{}
	for {
		select {
		case <-w.quit:
			return
		case <-w.cage.Done():
			<-w.quit
			return
		case <-w.kick: // the next round is wanted earlier
		case <-tick.C: // or was, by a call that is over already
		}
		if next := w.settle(due, ended.Add(pause)); next.After(time.Now()) {
			tick.Reset(time.Until(next))
			continue
		}
		start := time.Now()
		awake := w.round(watchesMemory)
		ended = time.Now()
		pause = max(watchBusy, watchShare*ended.Sub(start))
		due = ended.Add(max(pause, awake))
		tick.Reset(time.Until(w.settle(due, ended.Add(pause))))
	}
}

// round looks once and returns how long to sleep at most.
func (w *watchdog) round(watchesMemory bool) time.Duration {
	m := w.moment()
	activity, alone, err := activityOf(w.cage.kin, w.standby())
	still := err == nil && activity == w.activity
	w.activity = activity
	idle := watchAwake
	if alone {
		idle = watchIdle
	}
	switch {
	case m.running == 0 && !m.first && still && !w.owed && m.since < watchForced:
		return idle // nothing has run, so nothing has grown
	case err == nil && alone && m.unseen < watchBusy && m.since < watchIdle:
		// Nothing runs between the calls, and all calls together have not run for as
		// long as one may unseen: a session of many short ones is not measured at each.
		w.owed = true
		if m.running > 0 {
			return min(watchBusy-m.unseen, watchIdle-m.since)
		}
		return watchIdle - m.since
	}
	w.measuring(m)
	w.owed = false
	held, err := heldBy(w.cage.kin, watchesMemory)
	if err != nil {
		w.blindTo(err, m)
	} else {
		w.hidden = 0
	}
	w.checkFlight(held)
	if watchesMemory {
		w.checkMemory(held)
	}
	more := held.disk // of whichever place on the disk: the first that is watched has to bear it
	for _, d := range append([]*disk{w.disk}, w.others...) {
		if d != nil {
			w.checkDisk(d, more, m)
			more = 0
		}
	}
	switch {
	case m.running > 0:
		return watchBusy
	case still:
		return idle
	}
	return watchAwake
}

// blindTo ends a session of which a process stays out of sight: what can't be counted
// counts as too much.
func (w *watchdog) blindTo(err error, m moment) {
	if w.hidden++; w.hidden < hiddenFor {
		return
	}
	w.hidden = 0
	w.log.Warn("a session can't be watched", "err", err)
	w.enforce(ruling{end, "A process of the session could not be looked into, so that its limits can't be held."}, sandbox.StatusError)
}

// maxFlight is how long a session may have descriptors under way from socket to socket
// without a pause: what they stand for can't be counted.
const maxFlight = 2 * time.Second

func (w *watchdog) checkFlight(held held) {
	switch {
	case held.flight == 0:
		w.flying = time.Time{}
	case w.flying.IsZero():
		w.flying = time.Now()
	case time.Since(w.flying) > maxFlight:
		w.flying = time.Time{}
		w.enforce(ruling{end, "The session keeps open files in its sockets, sent and not received, where its limits can't be held."}, sandbox.StatusError)
	}
}

func (w *watchdog) checkMemory(held held) {
	limit := w.policy.Memory + watchAllowance
	used, err := memoryOf(w.cage.kin, limit, held)
	if err == nil && used > limit && used < 2*limit {
		// A child between vfork and exec shares all its parent has, and counts twice.
		time.Sleep(20 * time.Millisecond)
		used, err = memoryOf(w.cage.kin, limit, held)
	}
	if err != nil || used <= limit {
		return // an error: it has ended meanwhile
	}
	if w.giveUpStandby(used - limit) {
		return
	}
	w.enforce(ruling{end, fmt.Sprintf("The session went beyond its memory limit of %s.", kernel.Bytes(w.policy.Memory))}, sandbox.StatusOOM)
}

func (w *watchdog) standby() int {
	_, pid := w.client.Processes()
	return pid
}

// giveUpStandby ends the standby if that frees so much, and enough to be worth a checkpoint:
// an eighth of the limit. It reports whether it did.
func (w *watchdog) giveUpStandby(excess int64) bool {
	worker, standby := w.client.Processes()
	if worker == 0 || standby == 0 {
		return false
	}
	own, err := ownMemory(w.cage.kin, standby)
	// In this order: what the two share is the standby's own once the worker is dying, and
	// then it is needed.
	if err != nil || own < max(excess, w.policy.Memory/8) || dying(w.cage.kin, worker) {
		return false
	}
	err = w.client.Discard()
	w.log.Info("a session is short of memory: its checkpoint is given up", "bytes", own, "err", err)
	return err == nil
}

// checkDisk looks at one place; more is what is held there without a name.
func (w *watchdog) checkDisk(d *disk, more int64, m moment) {
	used, err := d.measure(more)
	if err != nil {
		select {
		case <-w.cage.Done(): // it went with the session
		default:
			w.log.Error("a directory of a session can't be measured", "err", err)
		}
		return
	}
	w.enforce(d.judge(used, m), sandbox.StatusError)
}

// enforce does what a ruling asks for.
func (w *watchdog) enforce(v ruling, status sandbox.Status) {
	if v.act == leave {
		return
	}
	w.mu.Lock()
	told := w.stopped
	w.stopped = true
	w.mu.Unlock()
	why := kernel.StopReason{Status: status, Text: v.text, Kill: v.act == end}
	// A call hears one reason alone, so one that is on its way out can't be hurried by a second.
	if !told && w.client.Stop(why) || v.act == interrupt {
		w.log.Info("a session is beyond a limit", "reason", v.text, "killed", why.Kill)
		return
	}
	w.mu.Lock()
	if w.why == "" {
		w.why = v.text
	}
	w.mu.Unlock()
	err := w.cage.Kill()
	w.log.Warn("a session is ended at a limit", "reason", v.text, "err", err)
}
