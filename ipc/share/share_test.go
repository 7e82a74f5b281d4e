package share

import (
	"testing"

	"pgregory.net/rapid"
)

// pretended is a session of the property test.
type pretended struct {
	id   uint64
	uid  Holder
	busy bool
}

func (p *pretended) ID() uint64 { return p.id }
func (p *pretended) Idle() bool { return !p.busy }

// TestNoUserBelowItsShareIsRefused: whatever users connect, close and ask, one that holds fewer sessions than the
// limit divided by the users is never refused, the session that makes way belongs to a user that holds more than its
// share, and it has no request in flight as long as another such session is idle.
func TestNoUserBelowItsShareIsRefused(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		limit := rapid.IntRange(1, 24).Draw(rt, "limit")
		users := rapid.IntRange(1, 8).Draw(rt, "users")
		s := New(limit)
		var open []*pretended
		held := func(uid Holder) (n int) {
			for _, p := range open {
				if p.uid == uid {
					n++
				}
			}
			return n
		}
		for id := range uint64(rapid.IntRange(1, 150).Draw(rt, "steps")) {
			switch rapid.IntRange(0, 5).Draw(rt, "step") {
			case 0: // close
				if len(open) > 0 {
					i := rapid.IntRange(0, len(open)-1).Draw(rt, "which")
					if !s.Remove(open[i].uid, open[i]) {
						rt.Fatal("an open session was not known")
					}
					open = append(open[:i], open[i+1:]...)
				}
			case 1: // a request names another holder, or a request begins or ends
				if len(open) > 0 && rapid.Bool().Draw(rt, "move") {
					p := open[rapid.IntRange(0, len(open)-1).Draw(rt, "which")]
					to := Holder(rapid.IntRange(0, users-1).Draw(rt, "to"))
					if !s.Move(p.uid, to, p) {
						rt.Fatal("an open session cannot move")
					}
					p.uid = to
					break
				}
				if len(open) > 0 {
					p := open[rapid.IntRange(0, len(open)-1).Draw(rt, "which")]
					p.busy = !p.busy
				}
			default:
				// Most come from one user: a flood.
				uid := Holder(rapid.SampledFrom([]int{0, 0, 0, rapid.IntRange(0, users-1).Draw(rt, "user")}).Draw(rt,
					"flood"))
				distinct := map[Holder]bool{uid: true}
				for _, p := range open {
					distinct[p.uid] = true
				}
				mine, full := held(uid), len(open) == limit
				x := &pretended{id: id, uid: uid, busy: rapid.Bool().Draw(rt, "busy")}
				out, ok := s.Add(uid, x)
				if !ok {
					if !full || mine < limit/len(distinct) {
						rt.Fatalf("user %d holds %d of %d sessions of %d users and is refused", uid, mine, limit,
							len(distinct))
					}
					continue
				}
				if (out != nil) != full {
					rt.Fatalf("%d of %d sessions, and %v makes way", len(open), limit, out)
				}
				if out != nil {
					victim := out.(*pretended)
					if held(victim.uid) < mine+2 {
						rt.Fatalf("user %d with %d sessions makes way for user %d with %d", victim.uid,
							held(victim.uid), uid, mine)
					}
					for i, p := range open {
						if p == victim {
							open = append(open[:i], open[i+1:]...)
							break
						}
					}
					for _, p := range open {
						if held := held(p.uid); p.uid != uid && held >= mine+2 && !p.busy {
							if victim.busy {
								rt.Fatal("a session with a request makes way beside an idle one")
							}
							if p.uid == victim.uid && p.id > victim.id {
								rt.Fatal("not the newest idle session makes way")
							}
						}
					}
				}
				open = append(open, x)
			}
			s.Check()
			if s.Len() != len(open) {
				rt.Fatalf("%d counted, %d open", s.Len(), len(open))
			}
		}
	})
}
