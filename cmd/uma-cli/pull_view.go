package main

import (
	"fmt"
	"os"
	"path"
	"strings"
	"time"

	"github.com/schollz/progressbar/v3"

	"github.com/uma-serve/uma-serve/internal/cli/ui"
	"github.com/uma-serve/uma-serve/models/pull"
)

// pullView shows a pull: on a terminal a bar for each file, elsewhere a line now and then. Its methods are called from
// one goroutine at a time.
type pullView struct {
	out *ui.Terminal
	to  *os.File                 // out's
	bar *progressbar.ProgressBar // of the file that is pulled; nil where nothing may move

	shown pull.Progress // the last progress that was taken
	at    time.Time     // of shown
	line  time.Time     // time of the last line
	speed float64       // bytes a second; the bar's own speed counts what was here before
}

const (
	linePause = 10 * time.Second // between two lines
	speedTime = 5 * time.Second  // time over which the speed is averaged
	barWidth  = 20               // columns, fewer in narrow windows
	barName   = 28               // columns of a file's name behind a bar
)

func newPullView(out *ui.Terminal, to *os.File) *pullView { return &pullView{out: out, to: to} }

func (v *pullView) observer() pull.Observer {
	return pull.Observer{Chosen: v.chosen, Progress: v.progress, Note: v.note}
}

// say writes a line, in place of the bar, which is drawn again below it.
func (v *pullView) say(text string) {
	if v.bar != nil {
		v.bar.Clear()
	}
	v.out.Println(text)
}

func (v *pullView) note(text string) { v.say(v.out.Dim(ui.Sanitize(text))) }

func (v *pullView) chosen(c pull.Choice) {
	files := ""
	if n := len(c.Files); n > 1 {
		files = fmt.Sprintf(" in %d files", n)
	}
	v.say(v.out.Bold(ui.Sanitize(c.Name)) + ", " + ui.Bytes(uint64(c.Bytes)) + files)
	if c.Why != "" {
		v.note("  " + c.Why)
	}
	const most = 5
	for i, left := range c.Left {
		if i == most {
			v.note(fmt.Sprintf("  and %d more files are left out", len(c.Left)-most))
			break
		}
		v.note("  left out: " + left)
	}
}

func (v *pullView) progress(p pull.Progress) {
	now := time.Now()
	if p.Number != v.shown.Number || p.Shared != v.shown.Shared || p.Done < v.shown.Done {
		v.begin(p, now)
	}
	if passed := now.Sub(v.at).Seconds(); passed > 0 {
		weight := min(1, passed/speedTime.Seconds())
		v.speed += weight * (float64(p.Done-v.shown.Done)/passed - v.speed)
	}
	v.shown, v.at = p, now
	switch {
	case v.bar != nil:
		v.bar.Describe(v.fit(p, v.speed)) // first: a bar that is full shows no other text
		v.bar.Set64(p.Done)
	case p.Done == p.Total || now.Sub(v.line) >= linePause:
		v.line = now
		v.out.Println(progressLine(p, v.speed))
	}
}

// begin starts a bar below the one before.
func (v *pullView) begin(p pull.Progress, now time.Time) {
	v.end()
	v.shown, v.at, v.line, v.speed = p, now, now, 0
	if !v.out.Animated() {
		return
	}
	v.bar = progressbar.NewOptions64(p.Total, progressbar.OptionSetWriter(v.to), progressbar.OptionSetWidth(barWidth),
		progressbar.OptionShowDescriptionAtLineEnd(), progressbar.OptionSetPredictTime(false),
		progressbar.OptionSetElapsedTime(false),
		progressbar.OptionSetDescription(v.fit(p, 0)))
}

// fit returns the text behind a bar, so that both have one line.
func (v *pullView) fit(p pull.Progress, speed float64) string {
	const beside = len(" 100% || ") + 2
	cols, _ := v.out.Size()
	p.File = ui.Fit(path.Base(p.File), barName)
	return ui.Fit(progressLine(p, speed), max(cols-beside, 0))
}

// end leaves the bar on the screen and the cursor below it.
func (v *pullView) end() {
	if v.bar == nil {
		return
	}
	v.bar.Exit()
	v.bar = nil
	fmt.Fprintln(v.to)
	v.out.CursorMoved()
}

// progressLine returns a file's name, how much of it is here, speed and time left.
func progressLine(p pull.Progress, speed float64) string {
	var b strings.Builder
	if p.Of > 1 {
		fmt.Fprintf(&b, "%d/%d ", p.Number, p.Of)
	}
	fmt.Fprintf(&b, "%s: %s of %s", ui.Sanitize(path.Base(p.File)), ui.Bytes(uint64(p.Done)), ui.Bytes(uint64(p.Total)))
	if p.Shared {
		b.WriteString(" by another process")
	}
	if p.Done < p.Total && speed >= 1 {
		left := time.Duration(float64(p.Total-p.Done) / speed * float64(time.Second))
		fmt.Fprintf(&b, ", %s/s, %s left", ui.Bytes(uint64(speed)), ui.Duration(left))
	}
	return b.String()
}
