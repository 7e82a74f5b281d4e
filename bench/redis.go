package bench

import (
	"cmp"
	"fmt"
	"net"
	"os"
	"os/exec"
	"time"
)

// redis is a redis-server or valkey-server on loopback.
type redis struct {
	addr string
	args []string // the program first
	cmd  *exec.Cmd
}

// startRedis starts a server with args beside its own; nil when there is none on the PATH.
func startRedis(dir string, args ...string) (*redis, error) {
	bin := ""
	for _, name := range []string{"valkey-server", "redis-server"} {
		if path, err := exec.LookPath(name); err == nil {
			bin = cmp.Or(bin, path)
		}
	}
	if bin == "" {
		return nil, nil
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	port := l.Addr().(*net.TCPAddr).Port
	l.Close()
	r := &redis{addr: fmt.Sprintf("127.0.0.1:%d", port), args: append([]string{bin, "--port", fmt.Sprint(port),
		"--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--dir", dir}, args...)}
	return r, r.start()
}

// start starts the server, or starts it again with the same address, and waits until it listens.
func (r *redis) start() error {
	r.cmd = exec.Command(r.args[0], r.args[1:]...)
	if err := r.cmd.Start(); err != nil {
		return err
	}
	for range 200 {
		if c, err := net.Dial("tcp", r.addr); err == nil {
			c.Close()
			return nil
		}
		time.Sleep(20 * time.Millisecond)
	}
	r.kill()
	return fmt.Errorf("%s does not listen on %s", r.args[0], r.addr)
}

// url returns the address as --fabric takes it.
func (r *redis) url() string { return "redis://" + r.addr }

// kill ends the server by SIGKILL. A nil server has none.
func (r *redis) kill() {
	if r != nil {
		r.cmd.Process.Kill()
		r.cmd.Wait()
	}
}

// signal sends a signal: SIGSTOP makes the server silent, SIGCONT ends that.
func (r *redis) signal(sig os.Signal) error { return r.cmd.Process.Signal(sig) }
