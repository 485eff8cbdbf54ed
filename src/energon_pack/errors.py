# SPDX-FileCopyrightText: 2026 The energon-pack authors
# SPDX-License-Identifier: Apache-2.0
"""The one base of every error that a user, not a programmer, can mend."""


class UserError(ValueError):
    """Settings or files that cannot be used; the message is for a person, without a traceback."""
