"""The contractions of VQA v2's evaluation: words that people wrote without their apostrophes.

The published table holds, for every contraction, each way to leave out exactly one apostrophe, so
it is the contractions that are listed here. Its gaps are kept ("hed" is read as "he'd", "shed" is
not read as "she'd"), for the figures hang on them. Left out is what can't be met: an entry for a
word with a capital, since case has gone before, and one that rewrites a word to itself.
"""

_WRITTEN_WELL = (
    "ain't aren't can't could've couldn't couldn't've didn't doesn't don't hadn't hadn't've hasn't"
    " haven't he'd he'd've he's how'd how'll how's isn't it'd it'd've it'll ma'am mightn't"
    " mightn't've might've mustn't must've needn't not've o'clock oughtn't 'ow's'at shan't she'd've"
    " should've shouldn't shouldn't've somebody'd've somebody'll somebody's someone'd someone'd've"
    " someone'll someone's something'd something'd've something'll that's there'd there'd've"
    " there're there's they'd they'd've they'll they're they've 'twas wasn't we'd've we've weren't"
    " what'll what're what's what've when's where'd where's where've who'd who'd've who'll who's"
    " who've why'll why're why's won't would've wouldn't wouldn't've y'all y'all'll y'all'd've"
    " you'd you'd've you'll you're you've"
)

CONTRACTIONS = {
    word[:place] + word[place + 1 :]: word
    for word in _WRITTEN_WELL.split()
    for place, letter in enumerate(word)
    if letter == "'"
}
# The one entry of the table that takes an apostrophe away.
CONTRACTIONS["somebody'd"] = "somebodyd"
