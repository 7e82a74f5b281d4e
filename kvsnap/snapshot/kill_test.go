//go:build unix

package snapshot

import (
	"bufio"
	"bytes"
	"context"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/uma-serve/uma-serve/kvsnap/snapshot/format"
)

var kills = flag.Int("kills", 20, "how often TestKill kills the writing process; the judged run says 200")

const childEnv = "UMA_SNAPSHOT_TEST_CHILD"

func TestMain(m *testing.M) {
	if dir := os.Getenv(childEnv); dir != "" {
		child(dir)
	}
	os.Exit(m.Run())
}

const (
	killBytesPerToken = 512
	savedLine         = "saved" // said by the child after a file is finished
)

func killOptions(dir string) Options {
	o := testOptions()
	o.Dir, o.DiskBytes, o.RAMBytes = dir, 6<<20, 8<<20
	return o
}

// child writes, deletes and evicts as fast as it can until it is killed.
func child(dir string) {
	c, err := Open(killOptions(dir))
	if err == nil {
		err = c.DiskError()
	}
	if err != nil {
		fmt.Println("error", err)
		os.Exit(1)
	}
	fmt.Println("ready")
	r := rand.New(rand.NewPCG(uint64(os.Getpid()), 1))
	ctx := context.Background()
	for {
		chat := text(10_000*r.IntN(40), 256*(1+r.IntN(3)))
		for p := 0; p < len(chat); p += 256 {
			b, err := c.Buffer(256 * killBytesPerToken)
			if err != nil {
				panic(err)
			}
			copy(b.Bytes(), cells(1, chat[:p+256], p, killBytesPerToken))
			k, err := c.Put(1, chat[:p+256], p, b)
			if err != nil {
				break
			}
			switch r.IntN(8) {
			case 0:
				_, _ = c.Delete(ctx, k)
			case 1, 2, 3:
				if c.Save(ctx, k) == nil {
					fmt.Println(savedLine)
				}
			default:
				fmt.Println("put")
			}
		}
	}
}

// TestKill kills a writing process with SIGKILL at random moments, each after at least one file was finished: how long
// that takes is the machine's. Every file it leaves under a final name is whole: none is damaged, and the next process
// opens the directory.
func TestKill(t *testing.T) {
	if testing.Short() {
		t.Skip("runs processes")
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(t.TempDir(), "kv")
	seed := uint64(time.Now().UnixNano())
	r := rand.New(rand.NewPCG(seed, 0))
	files, temps := 0, 0
	for i := range *kills {
		cmd := exec.Command(self, "-test.run=^$")
		cmd.Env = append(os.Environ(), childEnv+"="+dir)
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewReader(out)
		if line, err := lines.ReadString('\n'); line != "ready\n" {
			rest, _ := io.ReadAll(lines)
			t.Fatalf("child %d says %q %s (%v)", i, line, rest, err)
		}
		// What it says comes after what it does, and before the next: it is killed in the middle of something.
		for saved, more := false, r.IntN(60); !saved || more > 0; more-- {
			line, err := lines.ReadString('\n')
			if err != nil {
				t.Fatalf("child %d (seed %d) ends by itself: %v", i, seed, err)
			}
			saved = saved || line == savedLine+"\n"
		}
		if err := cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = cmd.Wait() // says that it was killed
		names, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range names {
			switch name := e.Name(); {
			case strings.HasSuffix(name, tempSuffix):
				temps++
			case strings.HasSuffix(name, format.Suffix):
				files++
				b, err := os.ReadFile(filepath.Join(dir, name))
				if err != nil {
					t.Fatal(err)
				}
				h, _, err := format.Open(b)
				if err != nil || format.Name(h.Key()) != name {
					t.Fatalf("kill %d (seed %d): %s: %v", i, seed, name, err)
				}
			}
		}
		if q, err := os.ReadDir(filepath.Join(dir, quarantineDir)); err != nil || len(q) > 0 {
			t.Fatalf("kill %d (seed %d): %d files in quarantine (%v)", i, seed, len(q), err)
		}
	}
	t.Logf("%d kills: %d whole files seen, %d unfinished ones", *kills, files, temps)
	if files == 0 {
		t.Error("no file was ever finished: the test tests nothing")
	}
	// And what is there can be restored, byte for byte.
	c := open(t, killOptions(dir))
	if c.DiskError() != nil {
		t.Fatal(c.DiskError())
	}
	tokens := 0
	for i := range 40 {
		chat := text(10_000*i, 768)
		m, ok := c.Lookup(1, chat)
		if !ok {
			continue
		}
		woken := make(chan struct{}, 8)
		f, err := c.Fetch(m, func() { woken <- struct{}{} })
		if err != nil {
			t.Fatal(err)
		}
		for s := Ready; s != Done; {
			var p Part
			switch p, s = f.Next(); s {
			case Waiting:
				<-woken
			case Failed:
				t.Fatal(f.Err())
			case Ready:
				if !bytes.Equal(p.Bytes, cells(1, chat[:p.P1], p.P0, killBytesPerToken)) {
					t.Fatalf("[%d, %d) came back with other bytes", p.P0, p.P1)
				}
				tokens += p.P1 - p.P0
			}
		}
		f.Close()
	}
	if tokens == 0 {
		t.Error("nothing could be restored")
	}
}
