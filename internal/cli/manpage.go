package cli

import (
	"fmt"
	"os"
	"regexp"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"

	"github.com/uma-serve/uma-serve/internal/cli/buildinfo"
)

// ManPagesCommand is the hidden `PROGRAM man-pages DIRECTORY`: a page in section 1 for the program and for each of its
// commands. usage marks an error as a mistake on the command line.
func ManPagesCommand(program string, usage func(error) error) *cobra.Command {
	return &cobra.Command{
		Use:     "man-pages DIRECTORY",
		Short:   "Write the manual pages",
		Hidden:  true,
		Example: "  " + program + " man-pages /usr/local/share/man/man1",
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) != 1 {
				return usage(fmt.Errorf("name the directory for the manual pages"))
			}
			root := cmd.Root()
			root.DisableAutoGenTag = true // its date differs from build to build
			if err := os.MkdirAll(args[0], 0o755); err != nil {
				return err
			}
			verbatim(root)
			return doc.GenManTree(root, &doc.GenManHeader{Section: "1", Source: "uma-serve " + buildinfo.Version,
				Manual: "uma-serve"}, args[0])
		},
	}
}

var indented = regexp.MustCompile(`(?m)^(?:  .*\n?)+`)

// verbatim indents the examples within the descriptions of cmd and its commands as Markdown, which the pages are made
// from, wants it of text whose line breaks stay.
func verbatim(cmd *cobra.Command) {
	cmd.Long = indented.ReplaceAllStringFunc(cmd.Long, func(block string) string {
		return "\n" + regexp.MustCompile(`(?m)^  `).ReplaceAllString(block, "    ") + "\n"
	})
	for _, sub := range cmd.Commands() {
		verbatim(sub)
	}
}
