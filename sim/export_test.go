package sim

// What tests of other packages' batchers need of an engine.

var (
	Conserves    = (*Engine).conserves
	SharedConfig = sharedConfig
)

// Live counts the requests of e that wait, run, and have not ended, and those that have.
func Live(e *Engine) (waiting, running, active int, ended int64) {
	return e.formation.Waiting(), len(e.formation.Running()), e.active, e.ended
}

// Forget takes the planned events away from e, and then that a step is due.
func Forget(e *Engine, due bool) { e.events.ev, e.stepDue = e.events.ev[:0], due }
