package daemonproc

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// What the daemon takes of the machine is that of all its processes: of the one that was started and of the engine
// processes that it has started (Linux).

// Processes returns the ids of the daemon's processes: the one that was started first, then those that it has started.
func (p *Proc) Processes() ([]int, error) {
	pids := []int{p.Cmd.Process.Pid}
	folder := fmt.Sprintf("/proc/%d/task", pids[0])
	tasks, err := os.ReadDir(folder)
	if err != nil {
		return nil, err
	}
	for _, t := range tasks { // any thread may have started a process
		b, err := os.ReadFile(folder + "/" + t.Name() + "/children")
		if ended(err) {
			continue
		}
		if err != nil {
			return nil, err
		}
		for _, f := range strings.Fields(string(b)) {
			pid, err := strconv.Atoi(f)
			if err != nil {
				return nil, err
			}
			pids = append(pids, pid)
		}
	}
	return pids, nil
}

// ended reports whether err says that a process or a thread has just ended.
func ended(err error) bool { return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ESRCH) }

// sum adds up a value of every process of the daemon. Engine processes that have just ended have none.
func sum[T int64 | time.Duration](p *Proc, of func(pid int) (T, error)) (total T, err error) {
	pids, err := p.Processes()
	for i, pid := range pids {
		v, verr := of(pid)
		if i > 0 && ended(verr) {
			continue
		}
		err = errors.Join(err, verr)
		total += v
	}
	return total, err
}

// CPU returns the processor time of all processes of the daemon so far, user and system, those that have ended
// included.
func (p *Proc) CPU() (time.Duration, error) { return sum(p, cpuOf) }

// RSS returns the resident set of all processes of the daemon in bytes. Pages that two of them share, such as those of
// the program, count twice.
func (p *Proc) RSS() (int64, error) { return sum(p, RSSOf) }

// PSS is as RSS, but a page that n processes share counts as a part of n in each.
func (p *Proc) PSS() (int64, error) { return sum(p, pssOf) }

// Kill ends all processes of the daemon by SIGKILL, as a machine's crash does, and waits for the first one's end.
func (p *Proc) Kill() error {
	pids, err := p.Processes()
	for _, pid := range pids {
		if kerr := syscall.Kill(pid, syscall.SIGKILL); kerr != nil && !errors.Is(kerr, syscall.ESRCH) {
			err = errors.Join(err, kerr)
		}
	}
	<-p.done
	return err
}

// statOf returns the fields of /proc/PID/stat behind the command's name, which may hold spaces: the third one of the
// line is first.
func statOf(pid int) ([]string, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return nil, err
	}
	_, rest, _ := strings.Cut(string(b), ") ")
	f := strings.Fields(rest)
	if len(f) < 15 {
		return nil, fmt.Errorf("/proc/%d/stat is short", pid)
	}
	return f, nil
}

// cpuOf returns the processor time of one process and of those that it has started and waited for.
func cpuOf(pid int) (time.Duration, error) {
	f, err := statOf(pid)
	if err != nil {
		return 0, err
	}
	ticks := int64(0)
	for _, text := range f[11:15] { // utime, stime, cutime, cstime
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			return 0, err
		}
		ticks += n
	}
	const perSecond = 100 // USER_HZ on every Linux architecture Go runs on
	return time.Duration(ticks) * time.Second / perSecond, nil
}

// RSSOf returns the resident set of one process in bytes.
func RSSOf(pid int) (int64, error) {
	all, _, err := ResidentOf(pid)
	return all, err
}

// ResidentOf returns the resident set of one process in bytes, and how much of it are pages of files (programs, mapped
// weights) and of shared memory.
func ResidentOf(pid int) (all, shared int64, err error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
	if err != nil {
		return 0, 0, err
	}
	var size int64
	if _, err := fmt.Sscan(string(b), &size, &all, &shared); err != nil {
		return 0, 0, err
	}
	page := int64(os.Getpagesize())
	return all * page, shared * page, nil
}

// pssOf returns the proportional set of one process in bytes.
func pssOf(pid int) (int64, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(b)) {
		if text, ok := strings.CutPrefix(line, "Pss:"); ok {
			kib, err := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(text), "kB")), 10, 64)
			return kib << 10, err
		}
	}
	return 0, fmt.Errorf("/proc/%d/smaps_rollup has no Pss", pid)
}

// DescriptorsOf counts the open descriptors of one process.
func DescriptorsOf(pid int) (int, error) {
	names, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	return len(names), err
}
