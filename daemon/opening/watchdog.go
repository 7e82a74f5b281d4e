package opening

import (
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
)

// Watchdog asks look twice in each interval of systemd's watchdog, if WATCHDOG_USEC is set, to call ping as long as the
// daemon makes progress.
func Watchdog(look func(ping func())) (stop func()) {
	interval, err := daemon.SdWatchdogEnabled(false)
	if err != nil || interval == 0 {
		return func() {}
	}
	t := time.NewTicker(interval / 2)
	done := make(chan struct{})
	go func() {
		for {
			select {
			case <-t.C:
				look(func() { daemon.SdNotify(false, daemon.SdNotifyWatchdog) })
			case <-done:
				return
			}
		}
	}()
	return func() { t.Stop(); close(done) }
}
