package prepare

import (
	"regexp"
	"strings"
)

// billingHeader begins the first line of Claude Code's system prompt:
//
//	x-anthropic-billing-header: cc_version=2.1.332.a1b; cc_entrypoint=cli; cch=5e6f7;
//
// The version's suffix depends on the first message of the user, and cch on the whole request, so that no prompt would
// begin as an earlier one does and nothing of it could be cached.
const billingHeader = "x-anthropic-billing-header:"

var (
	versionSuffix = regexp.MustCompile(`(\bcc_version=\d+\.\d+\.\d+)\.[^;\s]*`)
	requestSum    = regexp.MustCompile(`\bcch=[^;\s]*`)
)

// constantHeader makes the varying parts of that line constant in a system prompt. Other texts are returned unchanged.
func constantHeader(text string) string {
	if !strings.HasPrefix(text, billingHeader) {
		return text
	}
	line, rest, more := strings.Cut(text, "\n")
	line = requestSum.ReplaceAllString(versionSuffix.ReplaceAllString(line, "$1"), "cch=0")
	if more {
		line += "\n"
	}
	return line + rest
}
