package waitfor

import (
	"testing"
	"testing/synctest"
	"time"
)

// TestPoll: a condition is asked until it holds, however late that is within the limit, and the limit ends the wait.
func TestPoll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, c := range []struct {
			after time.Duration
			want  bool
		}{{0, true}, {time.Millisecond, true}, {time.Minute, true}, {Limit - 20*time.Millisecond, true},
			{Limit + time.Second, false}} {
			begin, asked := time.Now(), 0
			got := poll(func() bool { asked++; return time.Since(begin) >= c.after }, Limit)
			if took := time.Since(begin); got != c.want || took > min(c.after, Limit)+10*time.Millisecond {
				t.Errorf("true after %v: %v after %v", c.after, got, took)
			}
			if c.after == time.Millisecond && asked > 10 {
				t.Errorf("asked %d times in a millisecond", asked)
			}
		}
	})
}

func TestRecv(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := make(chan int)
		go func() {
			time.Sleep(Limit / 2)
			c <- 7
			close(c)
		}()
		if a, b := Recv(t, "a number", c), Recv(t, "its end", c); a != 7 || b != 0 {
			t.Errorf("%d and %d came", a, b)
		}
	})
}
