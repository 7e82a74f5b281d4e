package slo

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"time"
)

// Class is a request's priority class. Interactive requests go before Background ones.
type Class uint8

const (
	Interactive Class = iota
	Background

	// NumClasses is the number of classes, for arrays indexed by Class.
	NumClasses
)

var classNames = [NumClasses]string{"interactive", "background"}

// String returns the class's name, as clients and metrics spell it.
func (c Class) String() string {
	if c < NumClasses {
		return classNames[c]
	}
	return "class" + strconv.Itoa(int(c))
}

// AppendWord and SetWord are a class's text in a trace.
func (c *Class) AppendWord(dst []byte) []byte { return append(dst, c.String()...) }
func (c *Class) SetWord(text string) error {
	i := slices.Index(classNames[:], text)
	if i < 0 {
		return fmt.Errorf("%q is no class", text)
	}
	*c = Class(i)
	return nil
}

// Instant is a point on a monotonic axis, in nanoseconds; the scheduler's caller chooses its origin. The scheduler
// never reads a clock.
type Instant int64

// Never is the deadline of what has none.
const Never Instant = math.MaxInt64

// Add returns the instant d later.
func (t Instant) Add(d time.Duration) Instant { return t + Instant(d) }

// Sub returns how long after u the instant t is.
func (t Instant) Sub(u Instant) time.Duration { return time.Duration(t - u) }
