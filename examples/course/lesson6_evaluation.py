"""Lesson 6: a figure means something beside its interval and beside chance.

First an exam on unseen pairs. Captions follow a rule (each id is 3 more) that can be learned and
used on new pictures, so BLEU rises. Which picture has which caption can only be learned by heart:
on unseen pairs recall stays near chance, though of so many intervals one may miss it by luck. What
was learned by heart shows on the training pairs.

    python examples/course/lesson6_evaluation.py
"""

from lesson5_pretraining import pretrain

from vlm import VLMConfig, build_eval_suite, evaluate, mock_pairs, recall_at_k, wilson

DIRECTIONS = ("image_to_text", "text_to_image")
CHANCE = {f"{direction}_R@{k}": f"chance_R@{k}" for k in (1, 5, 10) for direction in DIRECTIONS}
CHANCE |= {"vqa_exact_match": "chance_vqa", "caption_bleu4": "chance_bleu4"}
CHANCE |= {"caption_rouge_l": "chance_rouge_l"}


def shown(figures: dict[str, float], name: str) -> str:
    return f"{figures[name]:.2f} [{figures[f'{name}_low']:.2f}, {figures[f'{name}_high']:.2f}]"


def main(
    n_samples: int = 50, num_pairs: int = 200, steps: int = 50, seeds: tuple[int, ...] = (0, 1, 2)
) -> None:
    small = VLMConfig(
        vocab_size=128, max_text_len=10, vision_hidden=64, projection_hidden=128, text_hidden=64
    )
    images, text_ids = mock_pairs(num_pairs, small.vocab_size, small.max_text_len)
    suite = build_eval_suite(0, n_samples, small.vocab_size, small.max_text_len)
    before = evaluate(pretrain(small, images, text_ids, steps=0)[0], suite)
    after = evaluate(pretrain(small, images, text_ids, steps)[0], suite)
    print(f"{n_samples} unseen pairs, before and after {steps} steps")
    for name, chance in CHANCE.items():
        change = f"{shown(before, name)} -> {shown(after, name)}"
        print(f"  {name:17} {change}, chance {after[chance]:.3f}")

    print(f"the {num_pairs} training pairs of lesson 5, after {steps} steps")
    config = VLMConfig()
    images, text_ids = mock_pairs(num_pairs, config.vocab_size, config.max_text_len)
    for seed in seeds:
        model, _ = pretrain(config, images, text_ids, steps, seed=seed)
        _, _, stats = model(images, text_ids)
        for k in (5, 10):
            recalls = zip(DIRECTIONS, recall_at_k(stats["similarity"], k), strict=True)
            for direction, recall in recalls:
                low, high = wilson(recall * num_pairs, num_pairs)
                print(f"  seed {seed}: {direction}_R@{k} {recall:.3f} ", end="")
                print(f"[{low:.3f}, {high:.3f}], chance {k / num_pairs:.3f}")


if __name__ == "__main__":
    main()
