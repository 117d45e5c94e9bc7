"""Locks on files."""

import errno

# Errors of `flock` on disks without locks, such as NFS without its lock service, or Lustre mounted without `flock`.
_WITHOUT_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP)


def has_no_locks(error: OSError) -> bool:
    """Return True if `flock` failed because the disk has no locks, and not because another process holds the lock."""
    return error.errno in _WITHOUT_LOCKS
