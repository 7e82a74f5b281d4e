//go:build !unix

package gguf

import "os"

func openRegular(path string) (*os.File, error) { return os.Open(path) }
