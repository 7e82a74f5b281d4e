package files

import (
	"net/http"
	"slices"
	"strconv"
	"strings"
)

// Limits of a page of a list, in entries: without "limit", and at most.
type Limits struct{ Listed, Most int }

// Page returns the part of a list that a query asks for with limit, after, after_id and before_id, and whether there is
// more in its direction. The list is in the falling order of ids, or the rising one with "order" asc. An id need not be
// there any more: a client may delete what it has read, and continue.
func Page[T any](r *http.Request, list []T, id func(*T) string, l Limits) (page []T, more bool, err error) {
	q, asc := r.URL.Query(), false
	switch order := q.Get("order"); order {
	case "", "desc":
	case "asc":
		asc = true
		slices.Reverse(list)
	default:
		return nil, false, bad("\"order\" is %.40q; it must be asc or desc", order)
	}
	limit := l.Listed
	if text := q.Get("limit"); text != "" {
		if limit, err = strconv.Atoi(text); err != nil || limit < 1 || limit > l.Most {
			return nil, false, bad("\"limit\" is %.40q; it must be 1…%d", text, l.Most)
		}
	}
	// behind compares an entry with an id: -1 before it in the list, 1 behind it.
	behind := func(e *T, of string) int {
		if asc {
			return strings.Compare(id(e), of)
		}
		return strings.Compare(of, id(e))
	}
	after, before := q.Get("after"), q.Get("before_id")
	if after == "" {
		after = q.Get("after_id")
	}
	if after != "" {
		list = slices.DeleteFunc(list, func(e T) bool { return behind(&e, after) <= 0 })
	}
	if before != "" {
		list = slices.DeleteFunc(list, func(e T) bool { return behind(&e, before) >= 0 })
	}
	switch more = len(list) > limit; {
	case more && before != "" && after == "":
		list = list[len(list)-limit:]
	case more:
		list = list[:limit]
	}
	return list, more, nil
}

// Ends returns the ids of the first and the last entry of a page, null where it has none.
func Ends[T any](page []T, id func(*T) string) (first, last any) {
	if len(page) == 0 {
		return nil, nil
	}
	return id(&page[0]), id(&page[len(page)-1])
}
