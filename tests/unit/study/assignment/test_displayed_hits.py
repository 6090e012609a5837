"""HITs: a reload shows the same items in the same order."""

from crossmatch.study.assignment.claims import claim_and_load, submit
from study_lab import add_annotator, add_small_study, answers_to, hit_of


def test_a_hit_that_is_opened_again_is_the_same(campaign):
    study = add_small_study(campaign, "recipe.people=2", items=9)
    for person in [add_annotator(campaign, study) for _ in range(2)]:
        for _ in range(3):
            claimed = claim_and_load(campaign, study, person)
            assert claimed == hit_of(campaign, claimed.claim_id, person)
            submit(campaign, claimed.claim_id, person, answers_to(claimed))
