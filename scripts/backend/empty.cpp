// The library is all of the back end; cmake wants a source file.
