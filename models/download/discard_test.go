package download

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestDiscard: what a canceled download has left is deleted, unless another client's download goes on from there.
func TestDiscard(t *testing.T) {
	s := newSite(t, 400_000, nil)
	s.slow()
	cancel := func() State {
		t.Helper()
		a := s.start(model, true)
		defer a.Release()
		s.begun(a)
		ended, end := context.WithCancel(t.Context())
		end()
		s.Cancel(ended, model) // does not wait
		if st, _ := a.State(); st.Status.Runs() {
			if err := s.Discard(s.dir, st); err == nil {
				if st, _ := a.State(); st.Status.Runs() {
					t.Error("the files of a process that has not ended were deleted")
				}
			}
		}
		return s.end(a)
	}
	canceled := cancel()
	b := s.start(model, true)
	defer b.Release()
	s.begun(b)
	if err := s.Discard(s.dir, canceled); err == nil || !strings.Contains(err.Error(), "runs as "+model) {
		t.Errorf("the files of the next download: %v", err)
	}
	s.fast()
	if st := s.end(b); st.Status != Finished {
		t.Fatalf("%+v", st.Err)
	}
	s.whole()
	if err := os.RemoveAll(filepath.Join(s.dir, filepath.Dir(file))); err != nil {
		t.Fatal(err)
	}
	s.slow()
	canceled = cancel()
	canceled.Choice = nil // as before the name was resolved
	if err := s.Discard(s.dir, canceled); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(filepath.Join(s.dir, filepath.Dir(file))); err == nil {
		t.Error("the folder is there")
	}
}
