package apikeys

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
)

// digests are Keys as another process of the daemon gets them: no key is in them.
type digests struct {
	Digest string `json:"digest"`
	Owner  string `json:"owner"`
}

// Digests returns the keys' digests with their owners, for ParseDigests.
func (k *Keys) Digests() []byte {
	list := make([]digests, len(k.entries))
	for i, e := range k.entries {
		list[i] = digests{hex.EncodeToString(e.digest[:]), e.owner.Name}
	}
	b, err := json.Marshal(list)
	if err != nil {
		panic("apikeys: " + err.Error()) // plain strings
	}
	return b
}

// ParseDigests reads what Digests returned.
func ParseDigests(b []byte) (*Keys, error) {
	var list []digests
	if err := json.Unmarshal(b, &list); err != nil {
		return nil, err
	}
	k := &Keys{names: map[uint32]string{}}
	for _, d := range list {
		raw, err := hex.DecodeString(d.Digest)
		if err != nil || len(raw) != sha256.Size {
			return nil, errors.New("a digest is no SHA-256 sum")
		}
		if err := checkOwner(d.Owner); err != nil {
			return nil, err
		}
		e := entry{digest: [sha256.Size]byte(raw), owner: Owner{OwnerID(d.Owner), d.Owner}}
		k.entries = append(k.entries, e)
		k.names[e.owner.ID] = e.owner.Name
	}
	return k, nil
}
