"""Ids of the marks that every vocabulary begins with."""

PAD_ID, BOS_ID, EOS_ID, UNK_ID = 0, 1, 2, 3
