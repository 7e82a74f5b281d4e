package daemon

import (
	"time"

	"github.com/uma-serve/uma-serve/core"
)

// tiersLoop is the decode loop as the tiers use it.
type tiersLoop struct{ l *loop }

func (t tiersLoop) Core() *core.Core                   { return t.l.core }
func (t tiersLoop) Result() *core.Result               { return &t.l.result }
func (t tiersLoop) Input(in core.Input, now time.Time) { t.l.handle(in, now) }
func (t tiersLoop) Progress(began time.Time)           { t.l.noteProgress(began) }
func (t tiersLoop) Stored(id core.RestoreID)           { t.l.mail.Put(command{kind: cmdStored, stored: id}) }
func (t tiersLoop) Offloaded(id core.ID, in core.Tier) {
	t.l.mail.Put(command{kind: cmdOffloaded, offloaded: id, tier: in})
}
func (t tiersLoop) Offer() { t.l.mail.Put(command{kind: cmdOffer}) }
