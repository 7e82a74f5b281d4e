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
	return Every(interval/2, func(time.Time) { look(func() { daemon.SdNotify(false, daemon.SdNotifyWatchdog) }) })
}

// Every calls look on a goroutine once in each interval, until stop is called.
func Every(interval time.Duration, look func(now time.Time)) (stop func()) {
	t := time.NewTicker(interval)
	done := make(chan struct{})
	go func() {
		for {
			select {
			case now := <-t.C:
				look(now)
			case <-done:
				return
			}
		}
	}()
	return func() { t.Stop(); close(done) }
}
