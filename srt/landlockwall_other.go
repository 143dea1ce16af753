//go:build !linux

package srt

import (
	"errors"
	"fmt"
)

func (l *Local) newLandlock() (wall, error) {
	return nil, fmt.Errorf("srt: the landlock wall needs Linux: %w", errors.ErrUnsupported)
}
