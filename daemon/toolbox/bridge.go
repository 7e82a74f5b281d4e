package toolbox

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/uma-serve/uma-serve/daemon/toolbox/setup"
)

// bridge is a running bridge process.
type bridge struct {
	s     *server
	cmd   *exec.Cmd
	in    io.WriteCloser
	temp  string
	last  *tail
	ended chan struct{} // closed when the process is gone

	write sync.Mutex // of in

	mu      sync.Mutex
	next    uint64
	waiting map[uint64]chan *setup.Answer
	inside  int // questions
	idle    *time.Timer
	err     error // why it has ended
	killed  bool  // and may be waited for: its id can be another process's
}

// environment returns that of a bridge and its server: the variables of the table, and those without which programs do
// not find their parts.
func environment(s *setup.Server, temp string) []string {
	env := []string{"TMPDIR=" + temp}
	for _, name := range []string{"PATH", "HOME", "LANG", "LC_ALL", "TZ"} {
		if v, ok := os.LookupEnv(name); ok {
			env = append(env, name+"="+v)
		}
	}
	for name, v := range s.Env {
		env = append(env, name+"="+v)
	}
	return append(env, setup.ProcsVariable+"="+bridgeProcs)
}

// bridgeProcs bounds the threads of a bridge: the stack of each counts as private memory, 8 MiB with cgo, and on a
// large machine they would exceed the limit.
const bridgeProcs = "4"

// start starts a bridge and waits until its server has introduced itself.
func start(ctx context.Context, s *server) (*bridge, error) {
	temp, err := os.MkdirTemp("", "uma-mcp-")
	if err != nil {
		return nil, err
	}
	o := &s.box.opts
	br := &bridge{s: s, temp: temp, last: &tail{}, ended: make(chan struct{}), waiting: map[uint64]chan *setup.Answer{}}
	br.cmd = exec.Command(o.Program, o.Args...)
	br.cmd.Env = environment(&s.setup, temp)
	br.cmd.Dir = temp
	br.cmd.Stderr = br.last
	br.cmd.WaitDelay = time.Second                           // for a process that holds standard error
	br.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // so that all of it can be ended
	fail := func(err error) (*bridge, error) {
		os.RemoveAll(temp)
		return nil, fmt.Errorf("start it: %w", err)
	}
	if br.in, err = br.cmd.StdinPipe(); err != nil {
		return fail(err)
	}
	out, err := br.cmd.StdoutPipe()
	if err != nil {
		return fail(err)
	}
	if err := br.cmd.Start(); err != nil {
		return fail(err)
	}
	greeted := make(chan *setup.Answer, 1)
	br.waiting[0] = greeted
	go br.read(out)
	line, err := json.Marshal(setup.Start{Server: s.setup, Temp: temp})
	if err == nil {
		err = br.send(line)
	}
	limit := time.NewTimer(o.Start)
	defer limit.Stop()
	if err == nil {
		select {
		case a := <-greeted:
			if a == nil {
				err = br.why()
			} else if a.Error != "" {
				err = fmt.Errorf("%.2000s", a.Error)
				br.end(err)
				<-br.ended
				return nil, fmt.Errorf("%w%s", err, ending(nil, br.last.String()))
			}
		case <-limit.C:
			err = fmt.Errorf("it did not introduce itself within %v", o.Start)
		case <-ctx.Done():
			err = context.Cause(ctx)
		}
	}
	if err != nil {
		br.end(err)
		<-br.ended
		return nil, err
	}
	br.idle = time.AfterFunc(o.Idle, br.rest)
	return br, nil
}

// read hands the answers to those who wait for them, until the bridge ends.
func (br *bridge) read(out io.Reader) {
	lines := bufio.NewScanner(out)
	lines.Buffer(make([]byte, 0, 64<<10), setup.MaxLine)
	var err error
	for lines.Scan() {
		a := new(setup.Answer)
		if err = json.Unmarshal(lines.Bytes(), a); err != nil {
			err = fmt.Errorf("the bridge writes no answer: %w", err)
			break
		}
		br.mu.Lock()
		to := br.waiting[a.ID]
		delete(br.waiting, a.ID)
		br.mu.Unlock()
		if to != nil { // else it was given up
			to <- a
		}
	}
	if err == nil {
		err = lines.Err()
	}
	if errors.Is(err, bufio.ErrTooLong) {
		err = fmt.Errorf("an answer has more than %d bytes", setup.MaxLine)
	}
	br.end(err)
	br.mu.Lock()
	br.killed = true
	br.mu.Unlock()
	werr := br.cmd.Wait()
	br.mu.Lock()
	if br.err == nil {
		br.err = errors.New("it has ended" + ending(werr, br.last.String()))
	}
	for id, to := range br.waiting {
		close(to)
		delete(br.waiting, id)
	}
	br.mu.Unlock()
	os.RemoveAll(br.temp)
	close(br.ended)
}

// ending says how a process has ended and what it wrote last.
func ending(err error, last string) (text string) {
	if err != nil {
		text = " (" + err.Error() + ")"
	}
	if last = strings.TrimSpace(last); last != "" {
		text += "; its last words: " + last
	}
	return text
}

// end kills the bridge and all that it has started. nil: it has ended by itself.
func (br *bridge) end(err error) {
	br.mu.Lock()
	if br.err == nil {
		br.err = err
	}
	if !br.killed { // else its leader may be waited for already, and the group another one's
		_ = syscall.Kill(-br.cmd.Process.Pid, syscall.SIGKILL)
	}
	br.mu.Unlock()
	br.in.Close()
}

// why returns why the bridge has ended.
func (br *bridge) why() error {
	br.mu.Lock()
	defer br.mu.Unlock()
	if br.err != nil {
		return br.err
	}
	return errors.New("it has ended")
}

// enter counts a question; false: the bridge has ended.
func (br *bridge) enter() bool {
	br.mu.Lock()
	defer br.mu.Unlock()
	if br.err != nil {
		return false
	}
	select {
	case <-br.ended:
		return false
	default:
	}
	br.inside++
	return true
}

// leave ends a question.
func (br *bridge) leave() {
	br.mu.Lock()
	defer br.mu.Unlock()
	if br.inside--; br.inside == 0 && br.idle != nil {
		br.idle.Reset(br.s.box.opts.Idle)
	}
}

// rest ends a bridge that is idle.
func (br *bridge) rest() {
	br.mu.Lock()
	busy := br.inside > 0
	if !busy && br.err == nil {
		br.err = errors.New("it was idle")
	}
	br.mu.Unlock()
	if !busy {
		br.end(nil)
	}
}

// send writes a line.
func (br *bridge) send(line []byte) error {
	br.write.Lock()
	defer br.write.Unlock()
	_, err := br.in.Write(append(line, '\n'))
	return err
}

// errTooSlow is the cause of a question's end when its time is over.
var errTooSlow = errors.New("no answer in time")

// ask asks a question that enter has counted. A server that does not answer in time is ended: what it does meanwhile
// is not known. A question that its client gives up is cancelled, and the questions of others continue.
func (br *bridge) ask(ctx context.Context, q setup.Question) (*setup.Answer, error) {
	defer br.leave()
	to := make(chan *setup.Answer, 1)
	br.mu.Lock()
	br.next++
	q.ID = br.next
	br.waiting[q.ID] = to
	br.mu.Unlock()
	line, err := json.Marshal(q)
	if err != nil {
		return nil, err
	}
	sent := make(chan error, 1)
	go func() { sent <- br.send(line) }() // a bridge that does not read costs this goroutine until it is ended
	for {
		select {
		case err := <-sent:
			if err != nil {
				br.end(err)
				<-br.ended
				return nil, br.why()
			}
			sent = nil
		case a := <-to:
			if a == nil { // it is ending
				<-br.ended
				return nil, br.why()
			}
			return a, nil
		case <-br.ended:
			select {
			case a := <-to:
				if a != nil {
					return a, nil
				}
			default:
			}
			return nil, br.why()
		case <-ctx.Done():
			err := context.Cause(ctx)
			if errors.Is(err, errTooSlow) {
				br.end(err)
				<-br.ended
				return nil, err
			}
			br.mu.Lock()
			delete(br.waiting, q.ID)
			br.mu.Unlock()
			if line, merr := json.Marshal(setup.Question{ID: q.ID, Kind: setup.Cancel}); merr == nil {
				go br.send(line) // fails when the bridge has ended
			}
			return nil, err
		}
	}
}

// tail keeps the last bytes that are written to it.
type tail struct {
	mu  sync.Mutex
	buf []byte
}

const tailBytes = 1 << 10

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.buf = append(t.buf, p[max(0, len(p)-tailBytes):]...)
	t.buf = t.buf[max(0, len(t.buf)-tailBytes):]
	return len(p), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return strings.ToValidUTF8(string(t.buf), "\ufffd")
}
