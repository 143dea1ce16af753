package srt

// kin are the processes behind one wall, by the first of them: the supervisor, or the
// warden, which runs nothing of the guest's and is the ancestor of all that does.
type kin struct {
	first int // the host's number of it; 0 = it never came to be

	// namespace says that the wall gave them a PID namespace, so that they have other
	// numbers inside, and, where the guest sees a /proc, all that is in it is theirs. Where it
	// did not, they are the descendants of the first, to whom orphans come back.
	namespace bool
	number    int // of the first in that namespace; 0 is 1. What has a lower one is the wall's own

	disks []string // directories whose files take room on the host's disk, as the guest knows them
}

// inside is the number of the first process as the guest knows it.
func (k kin) inside() int {
	switch {
	case !k.namespace:
		return k.first
	case k.number == 0:
		return 1
	}
	return k.number
}
