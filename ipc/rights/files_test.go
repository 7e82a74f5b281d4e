package rights

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/uma-serve/uma-serve/internal/testutil/waitfor"
	"github.com/uma-serve/uma-serve/ipc/sys"
	"github.com/uma-serve/uma-serve/ipc/wire"
	"github.com/uma-serve/uma-serve/ipc/wire/split"
)

// file returns an open file with that content.
func file(t testing.TB, content string) *os.File {
	t.Helper()
	f, err := os.Create(filepath.Join(t.TempDir(), "f"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	if _, err := f.WriteString(content); err != nil {
		t.Fatal(err)
	}
	return f
}

// TestFilesOfAFrame sends random frames with files over a real socket, one frame with one or more calls, and reads them
// in pieces of random sizes: every frame has its own files, whatever the kernel joins.
func TestFilesOfAFrame(t *testing.T) {
	const seed = 7
	rng := rand.New(rand.NewPCG(seed, 0))
	for round := range 60 {
		a, b, err := sys.SocketPair()
		if err != nil {
			t.Fatal(err)
		}
		var pool Pool
		files := pool.New(1)
		in := split.Frames{Max: 1 << 20}
		buf := make([]byte, 1+rng.IntN(3000))
		var want [][]string // of each frame that was sent, the contents of its files
		var got [][]string
		read := func(all bool) {
			for all || rng.IntN(3) == 0 {
				n, fds, err := Recv(b, buf)
				if err == unix.EAGAIN {
					return
				}
				if err != nil {
					t.Fatal(err)
				}
				files.Add(fds)
				rest := buf[:n]
				for {
					var payload []byte
					payload, rest, err = in.Next(rest)
					if err != nil {
						t.Fatal(err)
					}
					if payload == nil {
						files.Split()
						break
					}
					number := len(got)
					if !bytes.HasPrefix(payload, fmt.Appendf(nil, "%d ", number)) {
						t.Fatalf("frame %d: %.20q", number, payload)
					}
					of := files.Frame(len(rest) == 0)
					got = append(got, nil)
					for _, fd := range of {
						var b [64]byte
						n, err := unix.Pread(fd, b[:], 0)
						if err != nil {
							t.Fatal(err)
						}
						got[number] = append(got[number], string(b[:n]))
					}
					pool.Close(1, of)
				}
			}
		}
		for number := range 25 {
			payload := fmt.Appendf(nil, "%d %s", number, strings.Repeat("x", rng.IntN(6000)))
			frame := wire.AppendFrame(nil, payload)
			var oob []byte
			var names []string
			if rng.IntN(2) == 0 {
				var fds []int
				for k := range 1 + rng.IntN(4) {
					names = append(names, fmt.Sprintf("%d.%d", number, k))
					fds = append(fds, int(file(t, names[k]).Fd()))
				}
				oob = unix.UnixRights(fds...)
			}
			want = append(want, names)
			for len(frame) > 0 {
				piece := frame[:min(len(frame), 1+rng.IntN(4000))]
				n, err := unix.SendmsgN(a, piece, oob, nil, unix.MSG_DONTWAIT)
				if err != nil {
					t.Fatal(err)
				}
				frame, oob = frame[n:], nil
				read(false)
			}
		}
		read(true)
		if !slices.EqualFunc(got, want, slices.Equal) {
			t.Fatalf("seed %d, round %d, pieces of %d:\n%v\nwant\n%v", seed, round, len(buf), got, want)
		}
		files.Drop()
		waitfor.True(t, "all files are closed", func() bool { return pool.Open() == 0 })
		unix.Close(a)
		unix.Close(b)
	}
}

// dup returns a descriptor of f that the pool will own.
func dup(t testing.TB, f *os.File) int {
	t.Helper()
	fd, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	return fd
}

func TestRead(t *testing.T) {
	folder, err := os.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer folder.Close()
	pipe, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer pipe.Close()
	defer w.Close()
	onlyWrite, err := os.OpenFile(file(t, "x").Name(), os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer onlyWrite.Close()
	a, b := file(t, "first"), file(t, "second")
	for _, c := range []struct {
		files []*os.File
		which []int
		limit int
		want  []string
		bad   string
	}{
		{[]*os.File{a, b}, []int{0, 1}, 11, []string{"first", "second"}, ""},
		{[]*os.File{a, b}, []int{1, 1}, 12, []string{"second", "second"}, ""},
		{[]*os.File{a, b}, nil, 0, nil, ""},
		{[]*os.File{a, b}, []int{0, 1}, 10, nil, "fd:1 has 6 bytes, and 5 are left"},
		{[]*os.File{a}, []int{1}, 100, nil, "fd:1 is missing: 1 files came with the frame"},
		{nil, []int{0}, 100, nil, "fd:0 is missing"},
		{[]*os.File{folder}, []int{0}, 100, nil, "no regular file"},
		{[]*os.File{pipe}, []int{0}, 100, nil, "no regular file"},
		{[]*os.File{onlyWrite}, []int{0}, 100, nil, "not open for reading"},
		{[]*os.File{file(t, "")}, []int{0}, 100, nil, "fd:0 is empty"},
	} {
		var pool Pool
		files := pool.New(5)
		for _, f := range c.files {
			files.Add([]int{dup(t, f)})
		}
		type result struct {
			data [][]byte
			err  error
		}
		done := make(chan result, 1)
		pool.Read(5, Wanted{Files: files.Frame(true), Which: c.which, Limit: c.limit, Within: time.Hour},
			func(data [][]byte, err error) { done <- result{data, err} })
		r := waitfor.Recv(t, "files are read", done)
		var got []string
		for _, d := range r.data {
			got = append(got, string(d))
		}
		if !slices.Equal(got, c.want) || (r.err == nil) != (c.bad == "") ||
			r.err != nil && !strings.Contains(r.err.Error(), c.bad) {
			t.Errorf("%d files, %v: %q, %v; want %q, %q", len(c.files), c.which, got, r.err, c.want, c.bad)
		}
		waitfor.True(t, "all files are closed", func() bool { return pool.Open() == 0 })
	}
}

// TestTooMany: files above a limit are closed, and the error says so. Another user has room.
func TestTooMany(t *testing.T) {
	f := file(t, "x")
	var pool Pool
	full := make([]Files, 3)
	for i := range full {
		full[i] = pool.New(1)
		for range MaxFiles + 1 {
			full[i].Add([]int{dup(t, f)})
		}
	}
	if n := pool.Open(); n != maxOpenOne {
		t.Errorf("a user has %d open files", n)
	}
	other := pool.New(2)
	other.Add([]int{dup(t, f)})
	read := func(owner uint32, files *Files, k int) error {
		done := make(chan error, 1)
		pool.Read(owner, Wanted{Files: files.Frame(true), Which: []int{k}, Limit: 1, Within: time.Hour},
			func(_ [][]byte, err error) { done <- err })
		return waitfor.Recv(t, "files are read", done)
	}
	if err := read(2, &other, 0); err != nil {
		t.Error(err)
	}
	if err := read(1, &full[2], 0); err == nil || !strings.Contains(err.Error(), "was not taken in") {
		t.Error(err)
	}
	if err := read(1, &full[0], MaxFiles-1); err != nil {
		t.Error(err)
	}
	if err := read(1, &full[1], MaxFiles); err == nil || !strings.Contains(err.Error(), "was not taken in") {
		t.Error(err)
	}
	waitfor.True(t, "all files are closed", func() bool { return pool.Open() == 0 })
}
