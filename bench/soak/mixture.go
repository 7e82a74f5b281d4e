package soak

import (
	"math/rand/v2"
	"time"
)

// Kind is the type of an event.
type Kind uint8

const (
	Chat        Kind = iota // a question, whose answer is read as it comes
	Agent                   // rounds of a conversation with a tool
	Cancel                  // a question that is cancelled during its answer
	SlowReader              // a client that stops reading for a while
	Restart                 // a client that disconnects without a message, reconnects and sends its request again
	Storm                   // many prompts at once, of two classes
	Switch                  // questions to the other model, which is loaded for them and unloaded later
	DiskFault               // snapshots are damaged, deleted, or their folder is gone for a while
	FabricFault             // the store on the network hangs, or restarts empty
	ClockJump               // processes of the daemon stand still: for them time jumps
	Kinds                   // number of kinds
)

var kindNames = [Kinds]string{"chat", "agent", "cancel", "slow reader", "client restart", "storm", "model switch",
	"disk fault", "fabric fault", "clock jump"}

func (k Kind) String() string { return kindNames[k] }

// deck is the number of events of each kind in a hundred.
var deck = [Kinds]int{Chat: 52, Agent: 14, Cancel: 9, SlowReader: 6, Restart: 6, Storm: 4, Switch: 4, DiskFault: 2,
	FabricFault: 2, ClockJump: 1}

// Event is one event of the day.
type Event struct {
	At   time.Duration // since the start
	Kind Kind
	Seed uint64 // draws the event's details
}

// Mixture is the endless sequence of a day's events. They are independent of each other in time (Poisson), and their
// kinds come from shuffled decks of a hundred, so that each hundred has the same mixture. The first events are one of
// each kind: a short run has them all.
type Mixture struct {
	rng   *rand.Rand
	gap   time.Duration // mean
	until time.Duration // of the warm-up
	times float64       // factor on the rate of events until then
	at    time.Duration
	cards []Kind
}

// NewMixture makes the sequence of a seed, with a mean of perMinute events a minute.
func NewMixture(seed uint64, perMinute float64) *Mixture {
	m := &Mixture{rng: rand.New(rand.NewPCG(seed, 0)), gap: time.Duration(float64(time.Minute) / perMinute),
		times: 1}
	for k := range Kinds {
		m.cards = append(m.cards, k)
	}
	m.shuffle()
	return m
}

// WarmUpTimes is the factor on the rate of events in a warm-up: the pool, the host tier and the other caches are full
// when it ends, so that a later trend is not that of a cache that fills.
const WarmUpTimes = 4

// WarmUp multiplies the rate of the events before until by times.
func (m *Mixture) WarmUp(until time.Duration, times float64) { m.until, m.times = until, times }

func (m *Mixture) shuffle() {
	m.rng.Shuffle(len(m.cards), func(i, j int) { m.cards[i], m.cards[j] = m.cards[j], m.cards[i] })
}

// Next returns the next event.
func (m *Mixture) Next() Event {
	if len(m.cards) == 0 {
		for k, n := range deck {
			for range n {
				m.cards = append(m.cards, Kind(k))
			}
		}
		m.shuffle()
	}
	k := m.cards[len(m.cards)-1]
	m.cards = m.cards[:len(m.cards)-1]
	gap := m.rng.ExpFloat64() * float64(m.gap)
	if m.at < m.until {
		gap /= m.times
	}
	m.at += time.Duration(gap)
	return Event{At: m.at, Kind: k, Seed: m.rng.Uint64()}
}
