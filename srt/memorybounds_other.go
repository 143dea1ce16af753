//go:build !linux

package srt

func memoryBounds(string) []memoryBound { return nil }
