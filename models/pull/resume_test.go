package pull

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/uma-serve/uma-serve/models/pull/pulltest"
)

// oneFile is a server of one repository, hf.co/owner/name.
func oneFile(model []byte) *pulltest.Server {
	return &pulltest.Server{Download: cdnAddress, Repos: map[string]*pulltest.Repo{
		"owner/name": {Files: map[string][]byte{"name-Q4_K_M.gguf": model}}}}
}

const oneFilePath = "hf.co/owner/name/name-Q4_K_M.gguf"

// copyFolder copies the files as a killed process leaves them.
func copyFolder(t *testing.T, from, to string) {
	t.Helper()
	if err := os.CopyFS(to, os.DirFS(from)); err != nil {
		t.Fatal(err)
	}
}

// TestKilledAnyTime looks at what is on the disk at many moments of a download, as a killed process would leave it: all
// but the last second's bytes are named by the state, hold what the file holds, and are not asked for again.
func TestKilledAnyTime(t *testing.T) {
	const rate, second = 100_000, int64(100_000) // bytes a second, over four connections
	model := pulltest.GGUF(2_000_000, 1)
	server := oneFile(model)
	server.Fault = pulltest.OfFiles(pulltest.Slow(rate/4/50, 20*time.Millisecond))
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, server)
		defer f.close()
		done := make(chan error)
		go func() {
			_, err := f.pull(t.Context(), t, "hf.co/owner/name")
			done <- err
		}()
		path := filepath.Join(f.dir, oneFilePath)
		began := time.Now()
		for range 60 {
			time.Sleep(317 * time.Millisecond)
			synctest.Wait()
			received := int64(time.Since(began).Seconds() * rate)
			s, err := readState(path+".state", state{Sum: pulltest.Digest(model), Size: int64(len(model))})
			if err != nil && received > second {
				t.Fatalf("after %v: %v", time.Since(began), err)
			}
			if lost := received - s.Spans.total(); lost >= second {
				t.Errorf("after %v: %d bytes would be lost", time.Since(began), lost)
			}
			part, err := os.ReadFile(path + ".part")
			if err != nil {
				t.Fatal(err)
			}
			for _, e := range s.Spans {
				if !bytes.Equal(part[e[0]:e[1]], model[e[0]:e[1]]) {
					t.Fatalf("the bytes of %v are not those of the file", e)
				}
			}
			if s.Spans.total() < int64(len(model))/2 {
				continue
			}
			copied := &fixture{Server: f.Server, cfg: f.cfg, dir: filepath.Join(t.TempDir(), "copy")}
			copied.cfg.Observer = Observer{} // f's is told of the other download, which goes on
			copyFolder(t, f.dir, copied.dir)
			f.Fault = nil
			before := f.Served()
			if _, err := copied.pull(t.Context(), t, "hf.co/owner/name"); err != nil {
				t.Fatal(err)
			}
			if sent, missing := f.Served()-before, int64(len(model))-s.Spans.total(); sent < missing ||
				sent > missing+int64(4*rate/4/50) {
				t.Errorf("%d bytes were sent, %d were missing", sent, missing)
			}
			if got, err := os.ReadFile(filepath.Join(copied.dir, oneFilePath)); err != nil || !bytes.Equal(got, model) {
				t.Errorf("the file is not whole: %v", err)
			}
			break
		}
		if err := <-done; err != nil {
			t.Fatal(err)
		}
	})
}

// TestSlowDisk: a disk that takes five seconds for each sync is waited for: less than a second of bytes is ahead of the
// state at any time, and no connection is given up meanwhile.
func TestSlowDisk(t *testing.T) {
	const rate, second = 100_000, int64(100_000)
	model := pulltest.GGUF(500_000, 1)
	server := oneFile(model)
	server.Fault = pulltest.OfFiles(pulltest.Slow(rate/50, 20*time.Millisecond))
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, server)
		defer f.close()
		f.cfg.Connections = 1
		var mu sync.Mutex
		here := int64(0)
		f.cfg.Observer.Progress = func(p Progress) {
			mu.Lock()
			defer mu.Unlock()
			here = p.Done
		}
		path := filepath.Join(f.dir, oneFilePath)
		syncs := 0
		f.cfg.sync = func(part *os.File) error {
			if !strings.HasSuffix(part.Name(), ".part") {
				return syncData(part)
			}
			syncs++
			time.Sleep(5 * time.Second)
			s, _ := readState(path+".state", state{Sum: pulltest.Digest(model), Size: int64(len(model))})
			mu.Lock()
			defer mu.Unlock()
			if ahead := here - s.Spans.total(); ahead >= second {
				t.Errorf("%d bytes are ahead of the state", ahead)
			}
			return syncData(part)
		}
		if _, err := f.pull(t.Context(), t, "hf.co/owner/name"); err != nil {
			t.Fatal(err)
		}
		if syncs < 5 {
			t.Errorf("%d syncs", syncs)
		}
	})
}

// TestWritesAreLarge: a download is written in whole blocks of 256 KiB, in whatever pieces it comes; a slow one about
// ten times a second.
func TestWritesAreLarge(t *testing.T) {
	for _, c := range []struct {
		size, piece int
		every       time.Duration
	}{{3 << 20, 16 << 10, time.Millisecond}, {3<<20 + 1000, 10_000, time.Millisecond},
		{100_000, 1000, 20 * time.Millisecond}} {
		model := pulltest.GGUF(c.size, 1)
		server := oneFile(model)
		server.Fault = pulltest.OfFiles(pulltest.Slow(c.piece, c.every))
		synctest.Test(t, func(t *testing.T) {
			f := newFixture(t, server)
			defer f.close()
			f.cfg.Connections, f.cfg.segment = 3, segmentBytes
			var mu sync.Mutex
			writes, small := 0, 0
			f.cfg.writeAt = func(file *os.File, b []byte, at int64) (int, error) {
				mu.Lock()
				writes++
				if len(b) < bufferBytes || at%bufferBytes != 0 {
					small++
				}
				mu.Unlock()
				return file.WriteAt(b, at)
			}
			if _, err := f.pull(t.Context(), t, "hf.co/owner/name"); err != nil {
				t.Fatal(err)
			}
			pieces := (len(model) + c.piece - 1) / c.piece
			if slow := c.every > time.Millisecond; !slow && small > 2*f.cfg.Connections || writes >= pieces ||
				slow && writes < pieces/8 {
				t.Errorf("%d bytes in pieces of %d: %d writes, %d of them small", len(model), c.piece, writes, small)
			}
		})
	}
}

// TestInterrupt: an ended context leaves a state that the next pull goes on from, and the error says so.
func TestInterrupt(t *testing.T) {
	model := pulltest.GGUF(1_000_000, 1)
	server := oneFile(model)
	server.Fault = pulltest.OfFiles(pulltest.Slow(1000, 10*time.Millisecond))
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, server)
		defer f.close()
		ctx, cancel := context.WithTimeout(t.Context(), 1234*time.Millisecond)
		defer cancel()
		_, err := f.pull(ctx, t, "hf.co/owner/name")
		if !errors.Is(err, ErrInterrupted) || !strings.Contains(err.Error(),
			"are kept; the same command goes on from there") {
			t.Fatalf("%v", err)
		}
		s, err := readState(filepath.Join(f.dir, oneFilePath)+".state", state{Sum: pulltest.Digest(model),
			Size: int64(len(model))})
		if err != nil || s.Spans.total() < 400_000 {
			t.Fatalf("%v, %d bytes kept", err, s.Spans.total())
		}
		f.Fault = nil
		before := f.Served()
		if _, err := f.pull(t.Context(), t, "hf.co/owner/name"); err != nil {
			t.Fatal(err)
		}
		if sent := f.Served() - before; sent != int64(len(model))-s.Spans.total() {
			t.Errorf("%d bytes were sent, %d were missing", sent, int64(len(model))-s.Spans.total())
		}
	})
}

// TestDamagedLeftovers: whatever is in the files of an earlier pull, the file becomes whole.
func TestDamagedLeftovers(t *testing.T) {
	model := pulltest.GGUF(200_000, 1)
	path := func(f *fixture) string { return filepath.Join(f.dir, oneFilePath) }
	write := func(t *testing.T, name string, b []byte) {
		t.Helper()
		if err := os.WriteFile(name, b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for name, damage := range map[string]func(t *testing.T, f *fixture){
		"a part without a state":  func(t *testing.T, f *fixture) { os.Remove(path(f) + ".state") },
		"a state without a part":  func(t *testing.T, f *fixture) { os.Remove(path(f) + ".part") },
		"a shorter part":          func(t *testing.T, f *fixture) { os.Truncate(path(f)+".part", 1000) },
		"a longer part":           func(t *testing.T, f *fixture) { os.Truncate(path(f)+".part", 1_000_000) },
		"a state that is no JSON": func(t *testing.T, f *fixture) { write(t, path(f)+".state", []byte("{")) },
		"an endless state": func(t *testing.T, f *fixture) {
			write(t, path(f)+".state",
				bytes.Repeat([]byte(" "), 2<<20))
		},
		"a part with zeros": func(t *testing.T, f *fixture) {
			write(t, path(f)+".part",
				make([]byte, len(model)))
		},
		"an unfinished state":       func(t *testing.T, f *fixture) { write(t, path(f)+".state.tmp", []byte("{")) },
		"another file of the name":  func(t *testing.T, f *fixture) { write(t, path(f), []byte("GGUF")) },
		"an old file of the size":   func(t *testing.T, f *fixture) { write(t, path(f), make([]byte, len(model))) },
		"a record that is no JSON":  func(t *testing.T, f *fixture) { write(t, RecordPath(path(f)), []byte("x")) },
		"the file without a record": func(t *testing.T, f *fixture) { write(t, path(f), model) },
		"a lock that is not held":   func(t *testing.T, f *fixture) { write(t, path(f)+".lock", nil) },
	} {
		t.Run(name, func(t *testing.T) {
			server := oneFile(model)
			server.Fault = pulltest.OfFiles(pulltest.Slow(1000, 10*time.Millisecond))
			synctest.Test(t, func(t *testing.T) {
				f := newFixture(t, server)
				defer f.close()
				ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
				defer cancel()
				if _, err := f.pull(ctx, t, "hf.co/owner/name"); !errors.Is(err, ErrInterrupted) {
					t.Fatal(err)
				}
				damage(t, f)
				f.Fault = nil
				if _, err := f.pull(t.Context(), t, "hf.co/owner/name"); err != nil {
					t.Fatal(err)
				}
				if got, err := os.ReadFile(path(f)); err != nil || !bytes.Equal(got, model) {
					t.Errorf("the file is not whole: %v", err)
				}
				if _, err := ReadRecord(path(f)); err != nil {
					t.Error(err)
				}
				for _, left := range []string{".state", ".state.tmp"} {
					if _, err := os.Stat(path(f) + left); err == nil {
						t.Errorf("%s is left behind", left)
					}
				}
			})
		})
	}
}

// TestNewRevision: a file whose listing has changed is replaced; until then the old one has its name.
func TestNewRevision(t *testing.T) {
	old, new := pulltest.GGUF(100_000, 1), pulltest.GGUF(100_000, 2)
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, oneFile(old))
		defer f.close()
		path := filepath.Join(f.dir, oneFilePath)
		for _, model := range [][]byte{old, new} {
			f.Repos["owner/name"].Files["name-Q4_K_M.gguf"] = model
			if _, err := f.pull(t.Context(), t, "hf.co/owner/name"); err != nil {
				t.Fatal(err)
			}
			if got, err := os.ReadFile(path); err != nil || !bytes.Equal(got, model) {
				t.Errorf("it is not the listed file: %v", err)
			}
		}
	})
}

// TestShared: pulls of the same file at the same time send its bytes once; those that wait see the progress of the one
// that downloads, and take over when it is interrupted.
func TestShared(t *testing.T) {
	model := pulltest.GGUF(1_000_000, 1)
	server := oneFile(model)
	server.Fault = pulltest.OfFiles(pulltest.Slow(1000, 10*time.Millisecond))
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, server)
		defer f.close()
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		first := make(chan error)
		go func() {
			_, err := f.pull(ctx, t, "hf.co/owner/name")
			first <- err
		}()
		time.Sleep(time.Second)
		synctest.Wait()
		others := make(chan error)
		var mu sync.Mutex
		shared, notes := 0, 0
		for range 3 {
			other := &fixture{Server: f.Server, cfg: f.cfg, dir: f.dir}
			other.cfg.Observer = Observer{
				Progress: func(p Progress) {
					mu.Lock()
					defer mu.Unlock()
					if p.Shared && p.Done > 0 && p.Total == int64(len(model)) {
						shared++
					}
				},
				Note: func(text string) {
					mu.Lock()
					defer mu.Unlock()
					if strings.Contains(text, "another process pulls name-Q4_K_M.gguf") {
						notes++
					}
				},
			}
			go func() {
				_, err := other.pull(t.Context(), t, "hf.co/owner/name")
				others <- err
			}()
		}
		time.Sleep(500 * time.Millisecond)
		cancel()
		if err := <-first; !errors.Is(err, ErrInterrupted) {
			t.Fatal(err)
		}
		for range 3 {
			if err := <-others; err != nil {
				t.Error(err)
			}
		}
		if shared == 0 || notes < 3 {
			t.Errorf("%d shared progresses, %d notes", shared, notes)
		}
		if sent := f.Served(); sent > int64(len(model))+200_000 {
			t.Errorf("%d bytes were sent of a file of %d", sent, len(model))
		}
		for _, name := range f.files(t) {
			if strings.HasSuffix(name, ".lock") || strings.HasSuffix(name, ".part") || strings.HasSuffix(name,
				".state") {
				t.Errorf("%s is left behind", name)
			}
		}
	})
}

// TestModes: what may read the models folder may read what is pulled into it, whatever the umask; unfinished files are
// private. What root pulls belongs to the folder's owner.
func TestModes(t *testing.T) {
	for _, c := range []struct{ folder, dir, file os.FileMode }{{0o755, 0o755, 0o644}, {0o700, 0o700, 0o600},
		{0o750, 0o750, 0o640}} {
		synctest.Test(t, func(t *testing.T) {
			f := newFixture(t, oneFile(pulltest.GGUF(1000, 1)))
			defer f.close()
			if err := os.Mkdir(f.dir, 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.Chmod(f.dir, c.folder); err != nil {
				t.Fatal(err)
			}
			const service = 65534
			if os.Geteuid() == 0 {
				if err := os.Chown(f.dir, service, service); err != nil {
					t.Fatal(err)
				}
			}
			if _, err := f.pull(t.Context(), t, "hf.co/owner/name"); err != nil {
				t.Fatal(err)
			}
			for path, want := range map[string]os.FileMode{"hf.co": c.dir, "hf.co/owner/name": c.dir,
				oneFilePath: c.file, oneFilePath + ".json": c.file} {
				st, err := os.Stat(filepath.Join(f.dir, path))
				if err != nil || st.Mode().Perm() != want {
					t.Errorf("%s in a folder of %o: %v %v, want %o", path, c.folder, st.Mode().Perm(), err, want)
				}
				if sys := st.Sys().(*syscall.Stat_t); os.Geteuid() == 0 && sys.Uid != service {
					t.Errorf("%s belongs to user %d, not to the folder's owner", path, sys.Uid)
				}
			}
		})
	}
}
