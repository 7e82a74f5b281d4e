package tags

// A marker that is a token of the vocabulary reaches a matcher as a fence, its text and FenceEnd: then the same
// characters in ordinary tokens are not the marker. The fences are bytes that do not occur in UTF-8. The text of a
// HiddenFence is not shown, because the token is a control token; the text of a ShownFence is.
const (
	ShownFence  byte = 0xFD
	FenceEnd    byte = 0xFE
	HiddenFence byte = 0xFF
)
